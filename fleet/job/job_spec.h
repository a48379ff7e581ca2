#pragma once

#include <string>
#include <vector>

#include "fleet/launch/job_environment.h"
#include "fleet/strategy/distributed_strategy.h"
#include "transpiler/distribute/heter_programs.h"

namespace millrace::fleet {

/// All settings of a job except its programs.
struct JobSpec {
  DistributedStrategy strategy;
  std::vector<std::string> servers;           ///< host:port, in order
  int workers = 1;                            ///< number of trainers
  std::vector<std::string> worker_endpoints;  ///< host:port; may be empty
  /// Processes that run ops for the workers; none if it is empty and the environment has no
  /// PADDLE_ALL_HETER_TRAINER_IP_PORT_LIST.
  transpiler::HeterWorkers heter;
  EnvironmentReader environment;  ///< CPU_NUM, FLAGS_communicator_*
  /// The var with the learning rate of a schedule that the trainer steps; empty: a constant rate.
  std::string scheduled_rate;
  /// Workers average the gradients of dense parameters by all-reduce and update these themselves;
  /// servers have embeddings only. False: dense parameters are in tables of the servers.
  bool all_reduces_dense = false;
};

/// One process of a job.
struct JobRole {
  bool is_server = false;
  int index = 0;  ///< among workers, or among servers
};

}  // namespace millrace::fleet
