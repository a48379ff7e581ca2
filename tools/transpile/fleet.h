#pragma once

#include "tools/common/tool.h"
#include "tools/transpile/fields.h"

namespace millrace::tools {

/// transpile-program --minimize CONFIG --fleet JOB: writes trainer_<i> and pserver_<i> below -o,
/// each with __model__, __startup__, ps_desc.txt (the tables) and runtime.json (what the process
/// sends and receives). If one of them cannot be generated, nothing is written.
StatusOr<int> write_fleet(Tool& tool, const TranspileOptions& options);

}  // namespace millrace::tools
