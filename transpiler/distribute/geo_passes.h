#pragma once

#include <memory>

#include "framework/base/status.h"
#include "transpiler/distribute/job.h"
#include "transpiler/pass.h"

/// The passes of geo mode. Each works on the DistributionJob in the pass context.
namespace millrace::transpiler {

/// Main: finds parameters, gradients and tables from the optimizer ops on the trainer.
std::unique_ptr<Pass> geo_collect();
/// Main: slices the parameters, declares the slices and the vars of changes, assigns slices to
/// servers.
std::unique_ptr<Pass> geo_cut();
/// Main: appends the send that passes the ids of sparse lookups to the communicator. Lookups read
/// the trainer's own copy of the table.
std::unique_ptr<Pass> geo_send_ids();
/// Startup (of the context): receives the parameters, declares the vars of changes, and signals
/// that the parameters are ready.
std::unique_ptr<Pass> geo_extend_startup();

/// The main program of one server: a block per slice that adds the received changes.
std::unique_ptr<Program> make_geo_pserver(const Program& main, const DistributionJob& job,
                                          size_t server);

}  // namespace millrace::transpiler
