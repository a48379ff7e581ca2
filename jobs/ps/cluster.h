#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "executor/executor.h"
#include "framework/base/status.h"
#include "jobs/ps/job_folder.h"
#include "jobs/ps/server.h"
#include "jobs/ps/trainer.h"
#include "jobs/stats/progress_state.h"
#include "jobs/stats/trainer_stats.h"

namespace millrace::jobs {

/// A transpiled job whose trainers, servers and heter workers all run in this process.
struct ClusterOptions {
  JobFolder folder;
  std::string params;      ///< whole variables; may be empty
  std::string steps_file;  ///< npz with members tT/stepK/<var>; empty: nothing is fed
  int64_t steps = 1;
  std::vector<std::string> fetches;
  int threads = 1;            ///< of all trainers, of all servers, and of all heter workers
  Trainer::Settings trainer;  ///< of each trainer; number and threads are set
  Server::Settings server;    ///< of each server; threads are set
  std::string kill_point;     ///< KillPoint of each role, with a count of its own; may be empty
  Trainer::Ending ending;     ///< `gather` is set
  bool gathers = false;       ///< returns the variables of the servers
  bool keeps_stats = false;   ///< measures the time by activity
  /// True if the job is to end; called from several threads. All trainers then finish the last step
  /// that any of them has begun. Must not be empty.
  std::function<bool()> stopped = [] { return false; };
  ProgressSink* progress = nullptr;  ///< shows trainer 0; the others run at the same pace
};

/// What such a job returns.
struct ClusterResult {
  executor::NamedValues fetched;   ///< "tT/stepK/<name>"
  executor::NamedValues gathered;  ///< by original name
  std::vector<TrainerStats> stats;
  bool stopped = false;  ///< before the last step; nothing was saved
};

/// Runs the job until all trainers are done. Errors: those of readers, open_server() and
/// open_trainer(); of several failed processes, the error of one that did not just lose a peer.
StatusOr<ClusterResult> run_cluster(const ClusterOptions& options);

}  // namespace millrace::jobs
