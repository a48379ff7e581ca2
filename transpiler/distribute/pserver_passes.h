#pragma once

#include "framework/base/status.h"
#include "transpiler/distribute/job.h"
#include "transpiler/pass.h"

/// What the passes that turn a training program into the program of one trainer do, in pserver mode
/// and in the order of its pipeline (JobPass). docs/passes.md lists the passes.
/// Source: spec/transpiler.md section 4.
namespace millrace::transpiler {

/// Finds optimize ops and (param, grad) pairs; moves clipping to the trainer. Errors: an optimize
/// op without a param.
Status collect_optimizers(Program& main, PassContext& context, DistributionJob& job);
/// Finds sparse, prefetched and distributed lookup tables. Errors: two distributed tables; a table
/// used both as distributed and as another kind.
Status find_tables(Program& main, PassContext& context, DistributionJob& job);
/// Splits params and grads into slices and declares them; in sync mode renames grads that stay
/// whole to this trainer's name.
Status slice_vars(Program& main, PassContext& context, DistributionJob& job);
/// Assigns the slices to servers; fills the overview.
Status place_slices(Program& main, PassContext& context, DistributionJob& job);
/// Inserts split and send after the last writer of each gradient.
Status insert_sends(Program& main, PassContext& context, DistributionJob& job);
/// Asynchronous schedules: one step counter per trainer, summed on the servers.
Status share_step_counter(Program& main, PassContext& context, DistributionJob& job);
/// Appends send_barrier if the mode has one.
Status append_send_barrier(Program& main, PassContext& context, DistributionJob& job);
/// Appends the recv ops, replaces prefetched lookups, then appends fetch_barrier and the concats
/// that join sliced params.
Status append_recvs(Program& main, PassContext& context, DistributionJob& job);
Status replace_prefetched_lookups(Program& main, PassContext& context, DistributionJob& job);
Status join_params(Program& main, PassContext& context, DistributionJob& job);
/// Adds recv, fetch_barrier and concat to the trainer's startup program.
Status extend_trainer_startup(Program& main, PassContext& context, DistributionJob& job);
/// Replaces lookups of a distributed table by split_ids, prefetch and merge_ids, and sends its
/// gradient.
Status replace_distributed_lookups(Program& main, PassContext& context, DistributionJob& job);
/// Lists the optimizer state of every server in the overview.
Status list_optimizer_state(Program& main, PassContext& context, DistributionJob& job);

}  // namespace millrace::transpiler
