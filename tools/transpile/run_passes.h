#pragma once

#include "tools/common/tool.h"
#include "tools/transpile/fields.h"

namespace millrace::tools {

/// transpile-program --passes: reads one program, runs the pipeline, writes the result to -o.
/// With an empty pipeline the program is only converted between forms.
StatusOr<int> run_passes(Tool& tool, const TranspileOptions& options);

}  // namespace millrace::tools
