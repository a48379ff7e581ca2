#pragma once

#include <functional>
#include <string>
#include <vector>

#include "executor/executor.h"
#include "framework/base/log.h"
#include "framework/base/status.h"
#include "jobs/data/feed_options.h"
#include "jobs/data/step_dump.h"
#include "jobs/ps/trainer.h"
#include "jobs/stats/progress_state.h"

namespace millrace::jobs {

/// How a trainer trains.
struct TrainOptions {
  FeedOptions feeds;
  std::vector<std::string> fetches;
  DumpOptions dump;          ///< vars that are written to files
  int64_t print_period = 0;  ///< logs the fetches after this many steps each; 0: never
  /// True if the trainer is to leave the job after its step; called from its workers at once.
  std::function<bool()> stopped = [] { return false; };
  ProgressSink* progress = nullptr;  ///< null: progress is not shown
  LogSink log = ignore_log;
};

/// Runs all steps of a trainer, with all its workers, and ends its part in the job. Goes back to an
/// earlier step each time a server restarts at one. A trainer that is stopped leaves the job, which
/// continues without it, and saves nothing.
///
/// \param number   of the trainer, for the log
/// \param ending   what is saved at the end
/// \param results  receives the fetches: of the last step if examples are fed, otherwise of every
///                 step as "stepK/<name>"
/// Errors: those of Feeder, Trainer::step() and Trainer::finish().
Status train(Trainer& job, int number, const TrainOptions& options, const Trainer::Ending& ending,
             executor::NamedValues& results);

}  // namespace millrace::jobs
