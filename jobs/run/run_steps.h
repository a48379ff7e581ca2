#pragma once

#include <string>
#include <vector>

#include "executor/executor.h"
#include "framework/base/log.h"
#include "framework/base/status.h"
#include "jobs/data/feeder.h"
#include "jobs/data/step_dump.h"
#include "jobs/run/session.h"
#include "jobs/run/stop_together.h"
#include "jobs/stats/progress_state.h"

namespace millrace::jobs {

/// How the steps of a session are run.
struct StepsOptions {
  std::vector<std::string> fetches;
  DumpOptions dump;          ///< vars that are written to files
  int64_t print_period = 0;  ///< logs the fetches after this many steps each; 0: never
  /// Threads that run steps at the same time with the same variables
  /// (executor/parallel/worker_programs.h), each the next one when it has finished one.
  int workers = 1;
  CheckpointOptions checkpoints;
  bool observed = false;             ///< another observer of the session has been set
  ProgressSink* progress = nullptr;  ///< null: progress is not shown
  LogSink log = ignore_log;
};

/// The results of a run.
struct StepsResult {
  executor::NamedValues results;  ///< of the last step, or of several as "stepK/<name>"
  std::vector<double> losses;     ///< of the first fetch, if it is one number
};

/// Runs all steps that the feeder has, and saves checkpoints. Ends early after a step that `stop`
/// reports as the last one; a checkpoint of that step is saved. Warns of feeds without a var, and
/// of fetches that no op has written.
/// Errors: those of the feeder, of run_step() with file and step, and of RunCheckpoints. With
/// several workers kUsage without examples; kUnimplemented for several devices or processes,
/// checkpoints and records, and for the programs that WorkerPrograms refuses.
StatusOr<StepsResult> run_steps(Session& session, Feeder& feeder, const StepsOptions& options,
                                StopTogether& stop);

}  // namespace millrace::jobs
