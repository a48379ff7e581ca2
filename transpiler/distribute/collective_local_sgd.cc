#include <llvm/ADT/STLExtras.h>

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "framework/names.h"
#include "transpiler/distribute/collective_passes.h"
#include "transpiler/distribute/emit.h"
#include "transpiler/roles.h"

namespace millrace::transpiler {
namespace {

void declare_snapshot(Block& block, const Var& param) {
  VarSpec spec = VarSpec::tensor(param.dtype(), param.dims());
  spec.persistable = true;
  spec.stop_gradient = true;
  block.declare(names::snapshot(param.name()), std::move(spec));
}

// p := sum over ranks of (snapshot - p)
void send_difference(Op& update, const std::string& param, int64_t ring) {
  Block& block = update.block();
  Op* const where = block.next(update);
  emit_sub(block, where, names::snapshot(param), param, param, role::kOptimize);
  insert_in_place(block, where, "c_sync_calc_stream", param, role::kOptimize);
  insert_on_ring(block, where, "c_allreduce_sum", param, ring, role::kOptimize);
}

// p := snapshot - p / ranks, which is the new snapshot
void apply_mean(Block& block, const std::string& param, const CollectivePlan& plan) {
  const std::string snapshot = names::snapshot(param);
  emit_scale(block, nullptr, param, param,
             static_cast<float>(1.0 / static_cast<double>(plan.ranks)), role::kOptimize);
  emit_sub(block, nullptr, snapshot, param, param, role::kOptimize);
  emit_assign(block, nullptr, param, snapshot, role::kOptimize);
}

}  // namespace

Status snapshot_parameters(Program& main, PassContext& context, CollectivePlan& plan) {
  (void)main;
  Block& block = context.startup->root();
  for (const std::string& param : plan.parameters) {
    if (plan.is_table(param)) continue;
    declare_snapshot(block, *block.find_var(param));
    emit_assign(block, nullptr, param, names::snapshot(param), role::kForward);
  }
  return Ok();
}

Status average_updates(Program& main, PassContext& context, CollectivePlan& plan) {
  (void)context;
  Block& block = main.root();
  std::vector<std::string> params;  // last update first, without tables
  std::string first_updated;        // may be a table
  const std::vector<Op*> ops = block.op_vector();
  for (Op* op : llvm::reverse(ops)) {
    if (!is_update_op(*op)) continue;
    const Var* const param = block.find_var(op->first_input("Param"));
    if (param == nullptr) {
      return InvalidProgram("the op updates {}, which the block does not declare",
                            in_quotes(op->first_input("Param").str()))
          .at(op->location());
    }
    first_updated = param->name().str();
    if (plan.is_table(first_updated)) continue;
    declare_snapshot(block, *param);
    send_difference(*op, first_updated, static_cast<int64_t>(params.size()) % plan.rings);
    params.push_back(first_updated);
  }
  if (first_updated.empty()) {
    return InvalidProgram(
        "collective_mode local_sgd averages the changes of updates, but the program has no "
        "update op (with Param, Grad and LearningRate)");
  }
  for (int64_t ring = 0; ring < plan.rings; ++ring) {
    insert_on_ring(block, nullptr, "c_sync_comm_stream", first_updated, ring, role::kOptimize);
  }
  for (const std::string& param : llvm::reverse(params)) apply_mean(block, param, plan);
  return Ok();
}

}  // namespace millrace::transpiler
