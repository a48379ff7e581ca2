#pragma once

#include "framework/base/status.h"
#include "ops/registry.h"
#include "tools/run/options.h"
#include "tools/run/session.h"

/// --precision f64: runs a program written for float32 in float64, to find out which of two float32
/// results is more accurate.
namespace millrace::tools {

/// Refuses options that float64 runs do not support. Errors: kUnimplemented naming the option.
Status check_float64_run(const RunOptions& options);

/// With --precision f64: declares the program in float64 and converts the values of its scope,
/// which were read or initialized in the declared types.
Status widen_session(const RunOptions& options, const ops::OpRegistry& registry, Session& session);

}  // namespace millrace::tools
