#pragma once

#include "framework/base/status.h"
#include "tools/run/options.h"

/// --precision f64: runs a program written for float32 in float64, to find out which of two float32
/// results is more accurate.
namespace millrace::tools {

/// Refuses options that float64 runs do not support. Errors: kUnimplemented naming the option.
Status check_float64_run(const RunOptions& options);

}  // namespace millrace::tools
