#pragma once

#include "framework/base/status.h"
#include "transpiler/distribute/job.h"
#include "transpiler/distribute_result.h"

namespace millrace::transpiler {

/// The programs of one trainer: the rewritten main and startup without what the servers do now.
/// Optimize and learning-rate ops go, and so does the optimizer state with its initializers; sparse
/// tables are not initialized.
///
/// \param rewritten  main and startup as the steps left them, or copies; edited and returned. The
///                   job's ops may point into them; afterwards they are gone.
/// Errors: kInvalidProgram if a sparse table has not exactly one initializer. Source:
/// spec/transpiler.md section 4, get_trainer_program.
StatusOr<RolePrograms> make_trainer_programs(RolePrograms rewritten, const DistributionJob& job);

}  // namespace millrace::transpiler
