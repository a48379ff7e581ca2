#pragma once

#include "framework/base/status.h"
#include "transpiler/distribute/job.h"
#include "transpiler/distribute_result.h"

namespace millrace::transpiler {

/// Builds the programs of one trainer: the rewritten main and startup without the ops that servers
/// run. Optimize and learning-rate ops are removed, and so is the optimizer state with its
/// initializers; sparse tables are not initialized.
///
/// \param rewritten  main and startup after the distribution passes, or copies; edited and
///                   returned. The job's ops may point into them; afterwards they are invalid.
/// Errors: kInvalidProgram if a sparse table does not have exactly one initializer. Source:
/// spec/transpiler.md section 4, get_trainer_program.
StatusOr<RolePrograms> make_trainer_programs(RolePrograms rewritten, const DistributionJob& job);

}  // namespace millrace::transpiler
