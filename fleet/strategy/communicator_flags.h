#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "fleet/launch/job_environment.h"
#include "framework/base/status.h"
#include "ps/communicator/comm_options.h"

namespace millrace::fleet {

/// The communicator's settings of a mode as text by key ("communicator_send_queue_size"), like the
/// original's TrainerRuntimeConfig: from FLAGS_communicator_<name> and CPU_NUM of the environment,
/// with defaults. In sync mode, queue and merges are always CPU_NUM. Sync and geo leave out the
/// settings that they do not use.
///
/// \param k_steps  geo: default of queue and merges
/// Source: spec/fleet.md section 3, spec/ps_runtime.md section 5.
std::map<std::string, std::string> communicator_flags(ps::CommMode mode, int64_t k_steps,
                                                      const EnvironmentReader& environment);

}  // namespace millrace::fleet
