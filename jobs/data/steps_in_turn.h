#pragma once

#include <cstdint>
#include <functional>

#include "executor/executor.h"
#include "framework/base/status.h"
#include "jobs/data/feeder.h"

namespace millrace::jobs {

/// What threads call that run the steps of a feeder in turn.
struct TurnCalls {
  /// True: no more steps are begun. One thread at a time.
  std::function<bool()> stopped;
  /// Runs a step. Several threads at once. \param worker  from 0  \param results  its memory is
  /// reused
  std::function<Status(int worker, int64_t step, const executor::NamedValues& feeds,
                       executor::NamedValues& results)>
      run;
  /// Handles the results of a step, when its thread has run it. Several threads at once.
  /// \param examples  of the step; 0 if the feeder has none
  std::function<Status(int64_t step, int64_t examples, const executor::NamedValues& feeds,
                       executor::NamedValues& results)>
      write;
  /// The same afterwards, for what the threads share: one thread at a time, while no feeds are
  /// read.
  std::function<Status(int64_t step, const executor::NamedValues& feeds,
                       executor::NamedValues& results)>
      note;
  /// A thread runs no more steps; may be empty.
  std::function<Status()> leave = {};
};

/// Runs the steps of a feeder, starting at `first`, in as many threads as there are workers; each
/// takes the next one when it has finished one. The feeder is at `first`.
/// Errors: the first of the calls, and those of the feeder; kResource.
Status run_in_turn(Feeder& feeder, int workers, int64_t first, const TurnCalls& calls);

}  // namespace millrace::jobs
