#pragma once

#include <memory>

#include "framework/base/status.h"
#include "transpiler/distribute/job.h"
#include "transpiler/pass.h"

/// What the passes of geo mode do, in the order of its pipeline (JobPass).
namespace millrace::transpiler {

/// Finds parameters, gradients and tables from the optimizer ops on the trainer.
Status geo_collect(Program& main, PassContext& context, DistributionJob& job);
/// Slices the parameters, declares the slices and the vars of changes, assigns slices to servers.
Status geo_cut(Program& main, PassContext& context, DistributionJob& job);
/// Appends the send that tells the communicator which rows the step trained: the ids of lookups, or
/// the gradient where other ops train rows. Lookups read the trainer's own copy of the table.
Status geo_send_ids(Program& main, PassContext& context, DistributionJob& job);
/// In the startup program: receives the parameters, declares the vars of changes, and signals that
/// the parameters are ready.
Status geo_extend_startup(Program& main, PassContext& context, DistributionJob& job);

/// The main program of one server: a block per slice that adds the received changes.
std::unique_ptr<Program> make_geo_pserver(const Program& main, const DistributionJob& job,
                                          size_t server);

}  // namespace millrace::transpiler
