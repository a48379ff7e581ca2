#pragma once

#include "tools/common/tool.h"
#include "tools/transpile/fields.h"

namespace millrace::tools {

/// transpile-program without --passes: writes the programs of all roles into the folder -o.
StatusOr<int> distribute(Tool& tool, const TranspileOptions& options);

}  // namespace millrace::tools
