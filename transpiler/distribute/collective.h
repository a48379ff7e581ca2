#pragma once

#include "framework/base/status.h"
#include "ops/registry.h"
#include "transpiler/distribute/distribution_passes.h"
#include "transpiler/distribute_config.h"
#include "transpiler/distribute_result.h"

namespace millrace::transpiler {

/// Distributes a training program over equal trainers that reduce among themselves.
///
/// config.collective_mode selects what is reduced:
/// - grad_allreduce: the gradients, after every backward op that computes one;
/// - local_sgd: the change of each parameter in a step, after the update ops;
/// - single_process_multi_thread: the gradients of the devices of one process, and of its peers on
///   other machines (see fuse_allreduce and scale_loss_gradient of the config).
///
/// \returns rewritten clones of the two programs; the inputs are not changed
/// \param properties  is_distributed stays false, as in the original
/// \param pass_options  how the pipeline of the passes runs: verification, printing, dumps
/// Errors: kInvalidArgument for an unknown mode, a single endpoint (except the last mode), a
/// negative trainer_id, a current_endpoint that is not a trainer; kInvalidProgram for an
/// op_role_var of odd length or that names an undeclared var. Source: spec/transpiler.md
/// section 10.
StatusOr<RolePrograms> transpile_collective(const Program& main, const Program& startup,
                                            const DistributeTranspilerConfig& config,
                                            const TranspileArguments& arguments,
                                            const ops::OpRegistry& registry,
                                            ProgramProperties* properties,
                                            PassManagerOptions pass_options = fast_options());

}  // namespace millrace::transpiler
