#pragma once

#include <llvm/ADT/ArrayRef.h>
#include <llvm/ADT/StringRef.h>

#include "framework/base/status.h"
#include "transpiler/distribute/job.h"
#include "transpiler/pass.h"
#include "transpiler/pass_registry.h"
#include "transpiler/pipeline.h"

/// The passes that turn a training program into the program of one trainer, in pserver mode. Each
/// rewrites the main program and uses the facts of the job; docs/passes.md lists them. Source:
/// spec/transpiler.md section 4.
namespace millrace::transpiler {

using Step = Status (*)(Program&, PassContext&, DistributionJob&);

/// A pass with its name in pipelines, logs and errors.
struct NamedStep {
  llvm::StringRef name;
  llvm::StringRef summary;
  Step run;
};

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

/// The passes of transpile() in order.
llvm::ArrayRef<NamedStep> pserver_mode_steps();
/// The same as a pipeline: "collect-optimizers,find-tables,...".
Pipeline pserver_mode_pipeline();
/// Adds each pass to the registry. They work only with a DistributionJob in the pass context.
void register_distribution_steps(PassRegistry& registry);

/// Decides how the state of an optimizer op is sliced along with its param.
/// \returns true if the accumulator in the slot has the shape of the param and is sliced with it
/// Errors: kUnimplemented if the op type's state cannot be sliced over servers, naming op and slot.
StatusOr<bool> accumulator_follows_param(const Op& op, llvm::StringRef slot, bool param_is_cut);
/// True for slots that are not accumulators: Param, Grad, LearningRate, Beta1Tensor, Beta2Tensor.
bool is_plain_optimizer_slot(llvm::StringRef slot);

/// Whether a var kept by another op than the update (such as an average) is sliced with the param
/// of the pair.
bool kept_var_follows_param(const Var& var, const Block& block, const ParamGrad& pair);

/// Facts of a var for the overview.
VarFacts facts_of(const Var& var);

}  // namespace millrace::transpiler
