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

/// The programs of all devices, made by the passes of device_pipeline(), after those of optimize()
/// if the options ask for them. Writes the dot files that the strategy asks for.
///
/// \param keep     names of vars whose value is wanted after a run
/// \param remarks  receives what the passes say about device 0
/// Errors: those of the passes; kInternal if optimizing has lost a gradient; kIo.
StatusOr<std::vector<std::unique_ptr<Program>>> make_device_programs(
    const Program& program, const ops::OpRegistry& registry, const ParallelOptions& options,
    const std::vector<std::string>& keep, std::vector<std::string>& remarks);

/// Exchanges of a device's program: one more than the highest number in it.
int count_exchanges(const Program& program);

/// What the updates that devices make together are about.
struct SharedVars {
  int updates = 0;
  std::set<std::string> grads;        ///< never summed as a whole
  std::set<std::string> persistable;  ///< parameters and states, equal on all devices
};
SharedVars shared_vars(const Program& program);

/// Index that an op of a device's program has in the program as given; -1 for ops that passes have
/// put in.
int64_t given_index(const Program& given, const Program& of_device, int64_t op);

}  // namespace millrace::executor
