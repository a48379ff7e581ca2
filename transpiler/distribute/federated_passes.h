#pragma once

#include <memory>

#include "framework/base/status.h"
#include "transpiler/distribute/job.h"
#include "transpiler/pass.h"

/// What the passes of federated mode do, in the order of its pipeline (JobPass).
namespace millrace::transpiler {

/// Finds the parameters of sgd ops and appends "<p>.opti.trainer_i" = <p> for each.
Status federated_copy_params(Program& main, PassContext& context, DistributionJob& job);
/// Makes job.recv, which declares the vars of main and receives the parameters. Main is unchanged.
Status federated_recv(Program& main, PassContext& context, DistributionJob& job);
/// Appends a send per copy and, in sync mode, a barrier after them; sets job.first_send.
Status federated_send(Program& main, PassContext& context, DistributionJob& job);

/// The main program of the server: a block per parameter that averages what the trainers sent.
/// Errors: kInvalidProgram for a learning-rate op that reads an undeclared var.
StatusOr<std::unique_ptr<Program>> make_federated_pserver(const Program& main,
                                                          const PassContext& context,
                                                          const DistributionJob& job);

}  // namespace millrace::transpiler
