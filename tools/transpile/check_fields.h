#pragma once

#include "tools/common/tool.h"
#include "tools/transpile/fields.h"

namespace millrace::tools {

/// Options that were given and that this kind of transpilation does not read are told as warnings.
/// Errors: kUsage for geo_sgd_mode against another transpiler, and for program_attrs that are no
/// JSON object.
Status check_fields(const Tool& tool, const TranspileOptions& options);

}  // namespace millrace::tools
