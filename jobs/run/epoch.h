#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "executor/executor.h"
#include "framework/base/status.h"
#include "jobs/data/slot_data.h"

namespace millrace::jobs {

/// What a batch of examples gave.
struct BatchFacts {
  int64_t batch = 0;                              ///< number of batches that are done
  int64_t examples = 0;                           ///< in this batch
  const executor::NamedValues* values = nullptr;  ///< the fetches; null: there are none
};

/// How a program runs once for every batch of a pass over examples.
struct EpochOptions {
  std::vector<std::string> fetches;
  int64_t first_batch = 0;  ///< batches before it are read, but not run; more than there are: error
  int64_t print_period = 0;  ///< batches between calls of `print`; 0: never
  /// Receives the fetches; an error ends the pass.
  std::function<Status(const BatchFacts& facts)> print = {};
};

/// Result of a pass.
struct EpochResult {
  int64_t batches = 0;      ///< that were run
  int64_t examples = 0;     ///< in these batches
  int64_t left_out = 0;     ///< examples of batches that were not full
  double seconds = 0;       ///< of the whole pass, wall-clock time
  double wait_seconds = 0;  ///< in which no example was available
  /// Means of the fetches that were one float number in every batch. A batch counts as often as it
  /// has examples.
  std::map<std::string, double> means;
  executor::NamedValues last;  ///< the fetches of the batch that ended last
};

/// Runs one batch. \param worker  from 0  \param batch  its number, from 0  \param results receives
/// the fetches by name; their memory is reused
using RunBatch = std::function<Status(int worker, int64_t batch, const executor::NamedValues& feeds,
                                      executor::NamedValues& results)>;

/// Threads that run the batches of a pass: each takes the next one when it has finished one.
struct EpochWorkers {
  int count = 1;
  std::function<Status()> leave = {};  ///< a thread runs no more batches; may be empty
};

/// Makes one pass over the examples, from the first batch to the last. Several workers call `run`
/// at once, but `print` one at a time.
/// Errors: those of the readers, after the batches before the error have run; those of `run`, with
/// the number of the batch; those of `print`; kResource for a thread that cannot be started.
StatusOr<EpochResult> run_epoch(SlotData& data, const EpochOptions& options, const RunBatch& run,
                                const EpochWorkers& workers = {});

}  // namespace millrace::jobs
