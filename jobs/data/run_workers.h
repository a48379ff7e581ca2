#pragma once

#include <functional>

#include "framework/base/status.h"

namespace millrace::jobs {

/// What threads that take batches in turn call. All functions are called by several of them at
/// once.
struct WorkerCalls {
  /// Runs batches until there are no more or one has failed. \param worker  from 0
  std::function<Status(int worker)> work;
  /// After work(), and for each thread that could not be started: so that no worker waits at a
  /// barrier for one that has left. May be empty.
  std::function<Status()> leave = {};
  /// After the first failure: the other workers end after their batch.
  std::function<void()> stop;
};

/// Runs `work` in as many threads as there are workers (one worker: in that of the caller), and
/// waits for all. Errors: the first of the calls; kResource if a thread could not be started.
Status run_workers(int workers, const WorkerCalls& calls);

}  // namespace millrace::jobs
