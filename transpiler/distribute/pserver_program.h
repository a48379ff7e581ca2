#pragma once

#include "framework/base/status.h"
#include "transpiler/distribute/job.h"
#include "transpiler/pass.h"

namespace millrace::transpiler {

/// The main program of one server: declarations and one listen_and_serv in block 0, the
/// learning-rate block, one block per optimizer op, and the blocks of a distributed table.
///
/// \param main    the rewritten main program the job's ops point into; not changed
/// \param server  index of the endpoint
/// Errors: kInvalidArgument for delay compensation in sync mode; kUnimplemented for optimizers
/// whose state cannot be sliced; kInvalidProgram for undeclared vars. Cost: linear in what the
/// server holds. Source: spec/transpiler.md sections 6, 8 and 9.
StatusOr<std::unique_ptr<Program>> make_pserver_program(const Program& main,
                                                        const PassContext& context,
                                                        const DistributionJob& job, size_t server);

/// The startup program of one server: the initializers of what it holds, reduced to its slices.
/// \param pserver  result of make_pserver_program for the same server
/// Source: spec/transpiler.md section 7.
StatusOr<std::unique_ptr<Program>> make_pserver_startup(const Program& startup,
                                                        const Program& pserver,
                                                        const DistributionJob& job, size_t server);

}  // namespace millrace::transpiler
