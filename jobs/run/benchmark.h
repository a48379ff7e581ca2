#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "executor/executor.h"
#include "framework/base/status.h"
#include "jobs/run/session.h"
#include "jobs/run/stop_together.h"

namespace millrace::jobs {

/// How the steps of a session are timed.
struct BenchmarkOptions {
  std::vector<std::string> fetches;
  int64_t warmup = 3;   ///< steps before the timed ones
  int64_t steps = 1;    ///< timed steps, at least
  double duration = 0;  ///< minimum seconds of the timed steps
};

/// The times of a benchmark.
struct BenchmarkResult {
  std::vector<double> ms;  ///< of each timed step, ascending; empty if a signal ended the run early
  double cpu_ms = 0;       ///< of all threads of the process, for each step
  double peak_rss_mb = 0;  ///< of the process so far

  /// The time that a share q of the steps did not exceed, in ms. \param q  0 to 1
  [[nodiscard]] double quantile(double q) const;
};

/// Runs the same feeds in every step and measures the steps. Ends after a step that `stop` reports
/// as the last one. Errors: those of the executor, with the program's file; kDistributed.
StatusOr<BenchmarkResult> run_benchmark(Session& session, const executor::NamedValues& feeds,
                                        const BenchmarkOptions& options, StopTogether& stop);

}  // namespace millrace::jobs
