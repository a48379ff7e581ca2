#pragma once

#include <memory>

#include "framework/base/status.h"
#include "transpiler/distribute/job.h"
#include "transpiler/pass.h"

/// The steps of geo mode; each works on the DistributionJob beside the program.
namespace millrace::transpiler {

/// Main: finds parameters, gradients and tables, which the optimizer ops on the trainer tell.
std::unique_ptr<Pass> geo_collect();
/// Main: cuts the parameters, declares slices and the vars of what changed, places the slices.
std::unique_ptr<Pass> geo_cut();
/// Main: appends the send that hands the ids of sparse look-ups to the communicator; look-ups read
/// the trainer's own table.
std::unique_ptr<Pass> geo_send_ids();
/// Startup (of the context): receives the parameters, declares the vars of what changed, says that
/// the parameters are there.
std::unique_ptr<Pass> geo_extend_startup();

/// The main program of one server: a block per slice that adds what changed.
std::unique_ptr<Program> make_geo_pserver(const Program& main, const DistributionJob& job,
                                          size_t server);

}  // namespace millrace::transpiler
