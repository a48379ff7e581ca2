#pragma once

#include <memory>

#include "executor/runtime.h"
#include "jobs/run/session.h"

namespace millrace::jobs {

/// Creates session.parallel, for several devices or for processes that sum gradients. Errors: those
/// of SessionOptions::parallel and ParallelExecutor::create().
Status open_parallel(const SessionOptions& options,
                     const std::shared_ptr<const executor::Runtime>& runtime, Session& session);

}  // namespace millrace::jobs
