#include "transpiler/distribute/collective_passes.h"
#include "transpiler/roles.h"

namespace millrace::transpiler {
namespace {

// Inserts one wait for the computation, then the reductions. A later pair is reduced before an
// earlier one.
void reduce_after(Op& op, const std::vector<GradPair>& pairs, const CollectivePlan& plan,
                  int64_t& count) {
  Block& block = op.block();
  Op* wait = nullptr;
  for (const GradPair& pair : pairs) {
    if (plan.is_table(pair.param)) continue;
    if (wait == nullptr) {
      wait =
          &insert_in_place(block, block.next(op), "c_sync_calc_stream", pair.grad, role::kBackward);
    }
    insert_on_ring(block, block.next(*wait), "c_allreduce_sum", pair.grad, count++ % plan.rings,
                   role::kBackward);
  }
}

void wait_before_optimizer(Block& block, const std::string& grad, const CollectivePlan& plan) {
  for (Op& op : block.ops()) {
    if ((role::of(op) & role::kOptimize) == 0) continue;
    for (int64_t ring = 0; ring < plan.rings; ++ring) {
      insert_on_ring(block, &op, "c_sync_comm_stream", grad, ring, role::kBackward);
    }
    return;
  }
}

}  // namespace

Status allreduce_gradients(Program& main, PassContext& context, CollectivePlan& plan) {
  (void)context;
  Block& block = main.root();
  std::string last_grad;
  int64_t count = 0;
  // From the last op back, so that rings are assigned in the same order as in the original.
  MILLRACE_ASSIGN_OR_RETURN(const std::vector<PairsOfOp> all, pairs_from_last(block));
  for (const auto& [op, pairs] : all) {
    last_grad = pairs.back().grad;
    reduce_after(*op, pairs, plan, count);
  }
  if (last_grad.empty()) return Ok();
  wait_before_optimizer(block, last_grad, plan);
  return Ok();
}

}  // namespace millrace::transpiler
