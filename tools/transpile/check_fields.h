#pragma once

#include "tools/common/tool.h"
#include "tools/transpile/fields.h"

namespace millrace::tools {

/// Logs a warning for each given option that this kind of transpilation does not read. Errors:
/// kUsage for geo_sgd_mode with a transpiler that contradicts it, and for program_attrs that are
/// not a JSON object.
Status check_fields(const Tool& tool, const TranspileOptions& options);

}  // namespace millrace::tools
