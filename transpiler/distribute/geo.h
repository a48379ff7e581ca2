#pragma once

#include <string>
#include <vector>

#include "framework/base/status.h"
#include "ops/registry.h"
#include "transpiler/distribute/distribution_passes.h"
#include "transpiler/distribute_config.h"
#include "transpiler/distribute_result.h"
#include "transpiler/vars_distributed.h"

namespace millrace::transpiler {

/// Result of transpile_geo().
struct GeoPrograms {
  RolePrograms trainer;
  std::vector<RolePrograms> pservers;  ///< in order of the endpoints
  ProgramProperties properties;        ///< includes the facts for the communicator
  VarsDistributed overview;
};

/// Distributes a program for geo training: trainers optimize their own copies and periodically push
/// the changes; servers add them up.
///
/// Always asynchronous. The optimizer stays on the trainer and nothing is sent per parameter. One
/// send at the end of the step passes the ids of sparse lookups to the communicator. Parameters are
/// sliced for the servers even if slice_var_up is false, as in the original.
/// \param pass_options  how the pipeline of the passes runs: verification, printing, dumps
/// Errors: those of the configuration (spec/transpiler.md section 15), kInvalidProgram naming the
/// op. Source: spec/transpiler.md section 10.
StatusOr<GeoPrograms> transpile_geo(const Program& main, const Program& startup,
                                    const DistributeTranspilerConfig& config,
                                    const TranspileArguments& arguments,
                                    const ops::OpRegistry& registry,
                                    PassManagerOptions pass_options = fast_options());

}  // namespace millrace::transpiler
