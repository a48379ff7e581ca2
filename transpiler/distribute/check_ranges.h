#pragma once

#include "framework/base/status.h"
#include "transpiler/distribute_config.h"

namespace millrace::transpiler {

/// Upper ends of the numbers of a configuration, and lower ends that no mode checks: what programs
/// carry as 32 bits must fit, and what is made once a communicator must not take all memory.
/// Errors: kInvalidArgument naming the field, its value and what is expected.
Status check_ranges(const DistributeTranspilerConfig& config, const TranspileArguments& arguments);

}  // namespace millrace::transpiler
