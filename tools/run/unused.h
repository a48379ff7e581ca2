#pragma once

#include "tools/common/tool.h"
#include "tools/run/options.h"

namespace millrace::tools {

/// Logs a warning for each given option that this kind of run does not read. Options that would
/// change the meaning of the result if they were ignored (checks, checkpoints, saved results,
/// precision) are errors.
/// Errors: kUsage naming the option and what reads it.
Status check_unused(const Tool& tool, const RunOptions& options);

}  // namespace millrace::tools
