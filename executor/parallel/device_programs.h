#pragma once

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "executor/parallel/options.h"
#include "framework/base/status.h"
#include "framework/program.h"
#include "ops/registry.h"

namespace millrace::executor {

/// Makes the programs of all devices with the passes of device_pipeline(), run after those of
/// optimize() if the options enable it. Writes the dot files that the strategy requests.
///
/// \param keep     names of vars whose value is needed after a run
/// \param remarks  receives the remarks of the passes on device 0
/// Errors: those of the passes; kInternal if optimizing removed a gradient; kIo.
StatusOr<std::vector<std::unique_ptr<Program>>> make_device_programs(
    const Program& program, const ops::OpRegistry& registry, const ParallelOptions& options,
    const std::vector<std::string>& keep, std::vector<std::string>& remarks);

/// Number of exchanges of a device's program: one more than the highest exchange number in it.
int count_exchanges(const Program& program);

/// Vars of the updates that devices compute together.
struct SharedVars {
  int updates = 0;
  std::set<std::string> grads;        ///< never summed as a whole
  std::set<std::string> persistable;  ///< parameters and states, equal on all devices
};
SharedVars shared_vars(const Program& program);

/// Index in the original program of an op of a device's program; -1 for ops that passes have
/// inserted.
int64_t given_index(const Program& given, const Program& of_device, int64_t op);

}  // namespace millrace::executor
