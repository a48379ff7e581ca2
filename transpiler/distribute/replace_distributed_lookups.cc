#include "framework/base/errors.h"
#include "framework/names.h"
#include "transpiler/distribute/pserver_passes.h"
#include "transpiler/distribute/table_plan.h"
#include "transpiler/roles.h"

namespace millrace::transpiler {
namespace replace_distributed_lookups_parts {
namespace {

VarSpec like(const Var& var) {
  VarSpec spec = VarSpec::tensor(var.dtype(), var.dims());
  spec.kind = var.kind();
  if (spec.kind == VarKind::kSelectedRows) spec.form = TensorForm::kSelectedRows;
  return spec;
}

// Removes the lookups; returns the op that followed the first of them (null: the end). Errors:
// those of common_padding().
StatusOr<Op*> take_lookups(Block& block, DistributionJob& job, std::vector<std::string>& ids,
                           std::vector<std::string>& outputs) {
  std::vector<Op*> lookups;
  for (Op& op : block.ops()) {
    if (op.type() == "lookup_table" && op.first_input("W") == job.table.param)
      lookups.push_back(&op);
  }
  MILLRACE_ASSIGN_OR_RETURN(job.table.padding_idx, common_padding(lookups));
  Op* next = nullptr;
  bool found = false;
  for (Op& op : llvm::make_early_inc_range(block.ops())) {
    if (op.type() != "lookup_table" || op.first_input("W") != job.table.param) {
      if (found && next == nullptr) next = &op;
      continue;
    }
    found = true;
    ids.push_back(op.first_input("Ids").str());
    outputs.push_back(op.first_output("Out").str());
    block.erase(op);
  }
  return next;
}

void insert_prefetch(Block& block, Op* next, const DistributionJob& job,
                     const std::vector<std::string>& ids, const std::vector<std::string>& outputs) {
  Op& split = block.insert_before(next, "split_ids");
  split.set_input("Ids", ids).set_output("Out", job.table.ids_vars);
  finish(split, role::kForward);
  Op& prefetch = block.insert_before(next, "prefetch");
  prefetch.set_input("X", job.table.ids_vars)
      .set_output("Out", job.table.out_vars)
      .set_strings("epmap", job.endpoints);
  finish(prefetch, role::kForward);
  Op& merge = block.insert_before(next, "merge_ids");
  merge.set_input("Ids", ids)
      .set_input("Rows", job.table.ids_vars)
      .set_input("X", job.table.out_vars)
      .set_output("Out", outputs);
  finish(merge, role::kForward);
}

Status send_table_grad(Block& block, const DistributionJob& job) {
  Op* const writer = block.first_writer(job.table.grad);
  if (writer == nullptr) {
    return InvalidProgram("gradient '{}' of the distributed table is written by no op",
                          job.table.grad);
  }
  Op& split = block.insert_after(*writer, "split_ids");
  split.set_input("Ids", llvm::StringRef(job.table.grad)).set_output("Out", job.table.grad_vars);
  finish(split, role::kDist);
  Op& send = block.insert_after(split, "send");
  send.set_input("X", job.table.grad_vars);
  if (job.sync()) send.set_output("Out", llvm::StringRef(job.table_control));
  send.set_strings("epmap", job.endpoints)
      .set_int("trainer_id", static_cast<int32_t>(job.arguments.trainer_id));
  finish(send, role::kRpc).set_strings("op_role_var", {job.table.param, job.table.grad});
  return Ok();
}

// The update is sgd with summed gradients, as in the original; remarks say where that differs from
// the program.
Status check_update_of_table(const DistributionJob& job, PassContext& context) {
  if (job.sync() && job.trainers > 1)
    context.remarks.push_back(
        "the gradients of the distributed table '" + job.table.param +
        "' are summed over the trainers, not averaged like those of other "
        "parameters, as in the original: one process with all batches changes "
        "its rows by 1/" +
        std::to_string(job.trainers) + " of that");
  for (const Op* const op : job.ops_of_pair[job.pair_of_param.lookup(job.table.param)]) {
    if (!role::is_optimizer(*op)) {
      // sgd does not need powers of decay rates (adam of older releases).
      if (op->type() == "scale" && op->first_input("X") == op->first_output("Out")) continue;
      return Unimplemented(
                 "'{}' is run in addition to the update of the distributed table '{}', whose "
                 "servers only support sgd: it can be neither regularized nor averaged",
                 op->type().str(), job.table.param)
          .at(op->location());
    }
    if (op->type() == "sgd") continue;
    context.remarks.push_back("the distributed table '" + job.table.param +
                              "' is updated by sgd on its servers, not by '" + op->type().str() +
                              "': they keep no optimizer state for its rows");
  }
  return Ok();
}

}  // namespace
}  // namespace replace_distributed_lookups_parts

Status replace_distributed_lookups(Program& main, PassContext& context, DistributionJob& job) {
  using namespace replace_distributed_lookups_parts;
  if (!job.table.exists()) return Ok();
  MILLRACE_RETURN_IF_ERROR(check_update_of_table(job, context));
  Block& block = main.root();
  std::vector<std::string> ids;
  std::vector<std::string> outputs;
  MILLRACE_ASSIGN_OR_RETURN(Op* const next, take_lookups(block, job, ids, outputs));
  if (ids.empty())
    return InvalidProgram("no lookup of the distributed table '{}' is left", job.table.param);
  const Var* const ids_var = block.find_var(ids[0]);
  const Var* const out_var = block.find_var(outputs[0]);
  if (ids_var == nullptr || out_var == nullptr) {
    return InvalidProgram("'{}' is not declared in block 0",
                          ids_var == nullptr ? ids[0] : outputs[0]);
  }
  job.table.ids_spec = like(*ids_var);
  job.table.out_spec = like(*out_var);
  for (size_t i = 0; i < job.endpoints.size(); ++i) {
    job.table.ids_vars.push_back(names::prefetch_in(static_cast<int64_t>(i)));
    job.table.out_vars.push_back(names::prefetch_out(static_cast<int64_t>(i)));
    block.declare(job.table.ids_vars.back(), job.table.ids_spec);
    block.declare(job.table.out_vars.back(), job.table.out_spec);
  }
  insert_prefetch(block, next, job, ids, outputs);
  return send_table_grad(block, job);
}

}  // namespace millrace::transpiler
