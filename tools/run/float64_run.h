#pragma once

#include "executor/executor.h"
#include "framework/base/status.h"
#include "ops/registry.h"
#include "tools/run/options.h"
#include "tools/run/session.h"

/// --precision f64: a program made for float32 runs in float64, to say which of two float32 results
/// is nearer to the truth.
namespace millrace::tools {

/// Refuses what float64 runs are not there for. Errors: kUnimplemented naming the option.
Status check_float64_run(const RunOptions& options);

/// Feeds in the type in which the program runs: float32 becomes float64 with --precision f64.
Status widen_feeds(const RunOptions& options, executor::NamedValues& feeds);

/// With --precision f64: declares the program in float64 and converts the values of its scope,
/// which were read or initialised as the program says.
Status widen_session(const RunOptions& options, const ops::OpRegistry& registry, Session& session);

}  // namespace millrace::tools
