#pragma once

#include "framework/base/status.h"
#include "ops/registry.h"
#include "transpiler/distribute/distribution_passes.h"
#include "transpiler/distribute_config.h"
#include "transpiler/distribute_result.h"

namespace millrace::transpiler {

/// Distributes a training program over trainers whose executor reduces the gradients.
///
/// Main is not changed. Startup gets one var per communicator id and the op that creates the ids on
/// trainer 0 and sends them to the others. With use_hierarchical_allreduce each communicator has an
/// id within a node and one between nodes.
///
/// \returns clones of the two programs
/// \param properties  gets the endpoints and the communicator settings
/// \param pass_options  how the pipeline of the passes runs: verification, printing, dumps
/// Errors: kInvalidArgument for a negative trainer_id (0 is legal), a current_endpoint that is not
/// a trainer, a trainers list that is a bare number, a number of trainers that is not above
/// hierarchical_allreduce_inter_nranks or not a multiple of it.
/// Source: spec/transpiler.md section 10.
StatusOr<RolePrograms> transpile_nccl2(const Program& main, const Program& startup,
                                       const DistributeTranspilerConfig& config,
                                       const TranspileArguments& arguments,
                                       const ops::OpRegistry& registry,
                                       ProgramProperties* properties,
                                       PassManagerOptions pass_options = fast_options());

}  // namespace millrace::transpiler
