#pragma once

#include <map>
#include <string>
#include <vector>

#include "framework/base/status.h"

namespace millrace::fleet {

/// What `launch` is asked for; names as in the original's launcher.
struct LaunchOptions {
  int nproc_per_node = 0;  ///< ranks of a collective job on this machine
  int server_num = 0;
  int trainer_num = 0;
  std::vector<std::string> servers;   ///< their endpoints instead of chosen ones
  std::vector<std::string> trainers;  ///< likewise
  std::string host = "127.0.0.1";     ///< of chosen endpoints
  int start_port = 0;                 ///< of chosen endpoints, one after the other; 0: free ones
  int metrics_port = 0;               ///< of the first child, the next ones follow; 0: no metrics
  std::string job_id = "default";
};

/// One process to start.
struct ChildPlan {
  std::string role;  ///< "server" or "trainer"
  int rank = 0;
  std::map<std::string, std::string> environment;  ///< what is added to that of the launcher
  int metrics_port = 0;                            ///< where it shows its numbers; 0: nowhere

  /// "trainer.0", of the log file and of messages.
  [[nodiscard]] std::string name() const { return role + "." + std::to_string(rank); }
};

/// The children of a job with all their variables, servers first. Ports that are not given are
/// chosen so that nobody uses them now.
/// Errors: kUsage for numbers that do not fit; kResource where there is no free port.
/// Source: design/user_expectations.md section 5.
StatusOr<std::vector<ChildPlan>> plan_launch(const LaunchOptions& options);

}  // namespace millrace::fleet
