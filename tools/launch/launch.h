#pragma once

#include <string>
#include <vector>

#include "tools/common/tool.h"

namespace millrace::tools {

/// Options of launch; names as in the original's launcher.
struct LaunchFlags {
  int nproc_per_node = 0;
  int server_num = 0;
  int trainer_num = 0;
  int heter_worker_num = 0;
  std::string servers;
  std::string heter_workers;
  std::string trainers;
  std::string host = "127.0.0.1";
  int start_port = 0;
  int metrics = 0;
  std::string log_dir = "log";
  bool log_overwrite = true;
  std::string job_id = "default";
  std::string job_key;  ///< file of the job's key; made if it does not exist
  int max_restart = 0;
  double grace = 10;
  bool print_env = false;
  std::vector<std::string> command;
  std::vector<std::string> arguments;  ///< of launch, as typed
};

void add_launch_options(Tool& tool, LaunchFlags& flags);

/// Starts the job and waits until it has ended. \returns the exit code of the first child that
/// failed
/// Errors: those of plan_launch() and supervise().
StatusOr<int> run_launch(Tool& tool, const LaunchFlags& flags);

}  // namespace millrace::tools
