#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "framework/base/status.h"
#include "framework/program.h"
#include "ops/registry.h"
#include "transpiler/distribute_result.h"
#include "transpiler/pass_manager.h"

namespace millrace::transpiler {

/// Processes that run the ops with an op_device other than a CPU for the trainers of a job.
struct HeterWorkers {
  std::vector<std::string> endpoints;  ///< of the workers, host:port; empty: the job has none
  std::vector<std::string> returned;   ///< their vars that trainers fetch, besides the loss
};

/// Replaces the ops of heter workers in the training program by calls (pass heter-trainer), and
/// makes the programs of each worker (pass heter-worker). The result can be distributed as any
/// other training program; then each trainer needs number_heter_calls().
/// \param main     the training program, with its updates
/// \param options  how the pass heter-trainer runs
/// Errors: those of the passes.
StatusOr<std::vector<RolePrograms>> make_heter_workers(Program& main, const HeterWorkers& workers,
                                                       int64_t trainers,
                                                       const ops::OpRegistry& registry,
                                                       const PassManagerOptions& options);

/// Sets the trainer that the calls of heter workers name; the number selects the worker.
void number_heter_calls(Program& trainer, int64_t number);

}  // namespace millrace::transpiler
