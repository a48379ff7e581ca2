#include "framework/names.h"
#include "transpiler/distribute/collective_passes.h"
#include "transpiler/distribute/op_builder.h"
#include "transpiler/roles.h"

namespace millrace::transpiler {
namespace {

void reduce_list(Block& block, Op* where, const std::vector<std::string>& grads) {
  insert_in_place(block, where, "c_sync_calc_stream", grads.front(), role::kBackward);
  Op& reduce = block.insert_before(where, "c_allreduce_xsum");
  reduce.set_input("X", grads).set_output("Out", grads).set_int("ring_id", 0);
  finish(reduce, role::kBackward);
  insert_on_ring(block, where, "c_sync_comm_stream", grads.front(), 0, role::kBackward);
}

void reduce_buffer(Block& block, Op* where, const std::vector<std::string>& grads) {
  // The size is known only at run time; coalesce_tensor sets it.
  VarSpec spec = VarSpec::tensor(DType::kFloat32, {1});
  spec.stop_gradient = true;
  block.declare(names::kFusedGrads, std::move(spec));
  Op& join = block.insert_before(where, "coalesce_tensor");
  join.set_input("Input", grads).set_output("Output", grads);
  join.set_output("FusedOutput", names::kFusedGrads);
  join.set_bool("copy_data", true).set_bool("set_constant", false);
  join.set_int("dtype", static_cast<int32_t>(DType::kFloat32)).set_float("constant", 0);
  join.set_bool("use_align", true).set_int("align_size", -1);
  join.set_int("user_defined_size_of_dtype", -1).set_bool("persist_output", false);
  finish(join, role::kForward);
  insert_in_place(block, where, "c_sync_calc_stream", names::kFusedGrads, role::kBackward);
  insert_on_ring(block, where, "c_allreduce_sum", names::kFusedGrads, 0, role::kBackward);
  insert_on_ring(block, where, "c_sync_comm_stream", names::kFusedGrads, 0, role::kBackward);
}

}  // namespace

Status allreduce_fused(Program& main, PassContext& context, CollectivePlan& plan) {
  (void)context;
  Block& block = main.root();
  std::vector<std::string> grads;  // the gradient computed last is first
  Op* last = nullptr;              // the op that computes it
  MILLRACE_ASSIGN_OR_RETURN(const std::vector<PairsOfOp> all, pairs_from_last(block));
  for (const auto& [op, pairs] : all) {
    for (const GradPair& pair : pairs) {
      if (plan.is_table(pair.param)) continue;
      if (last == nullptr) last = op;
      grads.push_back(pair.grad);
    }
  }
  if (last == nullptr) return Ok();
  Op* const where = block.next(*last);
  if (plan.fuse_allreduce == 2) {
    reduce_list(block, where, grads);
  } else {
    reduce_buffer(block, where, grads);
  }
  return Ok();
}

}  // namespace millrace::transpiler
