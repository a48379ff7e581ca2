#pragma once

#include <memory>
#include <string>
#include <vector>

#include "framework/base/status.h"
#include "ops/registry.h"
#include "transpiler/distribute/distribution_passes.h"
#include "transpiler/distribute_config.h"
#include "transpiler/distribute_result.h"
#include "transpiler/vars_distributed.h"

namespace millrace::transpiler {

/// Result of transpile_federated(). A trainer runs recv, compute and send in this order; each of
/// them declares all vars of the main program.
struct FederatedPrograms {
  std::unique_ptr<Program> recv;     ///< fetches the parameters
  std::unique_ptr<Program> compute;  ///< one local step, then copies of the parameters
  std::unique_ptr<Program> send;     ///< sends the copies
  std::unique_ptr<Program> startup;  ///< as given
  std::vector<RolePrograms> pservers;
  /// Facts of the trainer's program object, as the original sets them. The reference programs
  /// record none of them: every trainer holds all parameters, so it saves and loads them locally.
  ProgramProperties properties;
  VarsDistributed overview;
  std::vector<std::string> remarks;
};

/// Distributes a program for federated training: trainers optimize with their own data and send
/// whole parameters; the server averages them.
///
/// Only parameters updated by an sgd op take part; others stay local, and a remark says so. The
/// attribute sync_mode of send and recv is the negation of the argument, as in the original.
/// \param pass_options  how the pipeline of the passes runs: verification, printing, dumps
/// Errors: kInvalidArgument for several servers (each would have to hold every parameter) and those
/// of the configuration; kInvalidProgram naming the op.
/// Source: spec/transpiler.md section 10.
StatusOr<FederatedPrograms> transpile_federated(const Program& main, const Program& startup,
                                                const DistributeTranspilerConfig& config,
                                                const TranspileArguments& arguments,
                                                const ops::OpRegistry& registry,
                                                PassManagerOptions pass_options = fast_options());

}  // namespace millrace::transpiler
