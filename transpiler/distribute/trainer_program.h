#pragma once

#include "framework/base/status.h"
#include "transpiler/distribute/job.h"
#include "transpiler/distribute_result.h"

namespace millrace::transpiler {

/// The programs of one trainer: copies of the rewritten main and startup without what the servers
/// do now. Optimize and learning-rate ops go, and so does the optimizer state with its
/// initializers; sparse tables are not initialized. Errors: kInvalidProgram if a sparse table has
/// not exactly one initializer. Source: spec/transpiler.md section 4, get_trainer_program.
StatusOr<RolePrograms> make_trainer_programs(const Program& main, const Program& startup,
                                             const DistributionJob& job);

}  // namespace millrace::transpiler
