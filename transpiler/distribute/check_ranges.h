#pragma once

#include "framework/base/status.h"
#include "transpiler/distribute_config.h"

namespace millrace::transpiler {

/// Checks the upper bounds of the numbers of a configuration, and the lower bounds that no mode
/// checks. Numbers that programs store in 32 bits must fit, and counts of communicators and threads
/// must be small enough not to exhaust memory.
/// Errors: kInvalidArgument naming the field, its value and what is expected.
Status check_ranges(const DistributeTranspilerConfig& config, const TranspileArguments& arguments);

}  // namespace millrace::transpiler
