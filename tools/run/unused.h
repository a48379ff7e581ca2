#pragma once

#include "tools/common/tool.h"
#include "tools/run/options.h"

namespace millrace::tools {

/// Options that were given and that this kind of run does not read are told as warnings; those
/// without which a run would answer another question than the one asked (checks, checkpoints, saved
/// results, precision) are errors.
/// Errors: kUsage naming the option and what reads it.
Status check_unused(const Tool& tool, const RunOptions& options);

}  // namespace millrace::tools
