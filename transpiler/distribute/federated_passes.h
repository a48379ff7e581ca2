#pragma once

#include <memory>

#include "framework/base/status.h"
#include "transpiler/distribute/job.h"
#include "transpiler/pass.h"

/// The passes of federated mode. Each works on the DistributionJob in the pass context.
namespace millrace::transpiler {

/// Main: finds the parameters of sgd ops and appends "<p>.opti.trainer_i" = <p> for each.
std::unique_ptr<Pass> federated_copy_params();
/// Copy of main: drops all ops and receives the parameters.
std::unique_ptr<Pass> federated_recv();
/// Main: appends a send per copy and, in sync mode, a barrier after them.
std::unique_ptr<Pass> federated_send();

/// The main program of the server: a block per parameter that averages what the trainers sent.
/// Errors: kInvalidProgram for a learning-rate op that reads an undeclared var.
StatusOr<std::unique_ptr<Program>> make_federated_pserver(const Program& main,
                                                          const PassContext& context,
                                                          const DistributionJob& job);

}  // namespace millrace::transpiler
