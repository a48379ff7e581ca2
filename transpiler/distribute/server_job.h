#pragma once

#include "framework/base/status.h"
#include "transpiler/distribute/job.h"
#include "transpiler/distribute_config.h"
#include "transpiler/distribute_result.h"

/// Shared by the modes that have servers without an optimizer on them (geo, federated).
namespace millrace::transpiler {

/// Fills the input fields of a job. Errors: kInvalidArgument naming the field.
Status set_up_job(const DistributeTranspilerConfig& config, const TranspileArguments& arguments,
                  DistributionJob& job);

/// Fills pairs, pair_of_param and pair_of_grad from the ops whose role is exactly Optimize; the
/// first op of each parameter determines the pair. Clipping ops (name scope with "@CLIP") become
/// backward ops; nothing else changes.
/// Errors: kInvalidProgram with the op's location if op_role_var has one name or names an
/// undeclared var.
Status collect_pairs(Program& main, DistributionJob& job);

/// Assigns all slices to servers in pair order; fills job.owned and the overview's "Param" entries.
/// Errors: those of make_dispatcher().
Status place_in_order(const Program& main, DistributionJob& job);

/// Facts of the trainer's program object.
ProgramProperties job_properties(const DistributionJob& job);

}  // namespace millrace::transpiler
