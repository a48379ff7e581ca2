#pragma once

#include <map>
#include <string>
#include <vector>

#include "framework/base/status.h"

namespace millrace::fleet {

/// Options of `launch`; names as in the original's launcher.
struct LaunchOptions {
  int nproc_per_node = 0;  ///< ranks of a collective job on this machine
  int server_num = 0;
  int trainer_num = 0;
  int heter_worker_num = 0;
  std::vector<std::string> servers;        ///< endpoints; empty: chosen by launch
  std::vector<std::string> trainers;       ///< likewise
  std::vector<std::string> heter_workers;  ///< likewise
  std::string host = "127.0.0.1";          ///< host of chosen endpoints
  int start_port = 0;                      ///< first port of chosen endpoints; 0: free ports
  int metrics_port = 0;                    ///< of the first child; others follow; 0: no metrics
  std::string job_id = "default";
};

/// One process to start.
struct ChildPlan {
  std::string role;  ///< "server", "trainer" or "heter"
  int rank = 0;
  std::map<std::string, std::string> environment;  ///< added to that of the launcher
  int metrics_port = 0;                            ///< port of its metrics; 0: none

  /// "trainer.0", for the log file and messages.
  [[nodiscard]] std::string name() const { return role + "." + std::to_string(rank); }
};

/// The children of a job with all their variables, servers first. Ports that are not given are
/// chosen among free ports.
/// Errors: kUsage for invalid numbers; kResource if there is no free port.
/// Source: design/user_expectations.md section 5.
StatusOr<std::vector<ChildPlan>> plan_launch(const LaunchOptions& options);

}  // namespace millrace::fleet
