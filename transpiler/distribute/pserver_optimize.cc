#include <algorithm>
#include <array>

#include "framework/base/errors.h"
#include "framework/names.h"
#include "ops/infer_shapes.h"
#include "transpiler/distribute/emit.h"
#include "transpiler/distribute/optimizer_state.h"
#include "transpiler/distribute/pserver_builder.h"
#include "transpiler/roles.h"

namespace millrace::transpiler {
namespace {

// Sum and mean of the trainers' gradients.
void append_merge(PserverBuilder& b, Block& block, const PlacedSlice& slice) {
  std::vector<std::string> parts;
  for (int64_t trainer = 0; trainer < b.job.trainers; ++trainer) {
    parts.push_back(names::trainer(slice.server_grad, trainer));
  }
  emit_sum(block, nullptr, parts, slice.server_grad, role::kForward);
  emit_scale(block, nullptr, slice.server_grad, slice.server_grad,
             static_cast<float>(1.0 / static_cast<double>(b.job.trainers)), role::kForward);
}

// Declares a var of block 0 with the dims of the original, or with those given.
Status declare_state(PserverBuilder& b, const Op& op, llvm::StringRef name, const Dims* dims) {
  if (b.root().find_var(name) != nullptr) return Ok();
  const Var* const var = b.origin.root().find_var(name);
  if (var == nullptr) {
    return InvalidProgram("'{}' is not declared in block 0",
                          std::string_view(name.data(), name.size()))
        .at(op.location());
  }
  VarSpec spec = plain_spec(VarKind::kLodTensor, var->dtype(),
                            dims == nullptr ? var->dims() : llvm::ArrayRef(*dims));
  if (var->persistable()) spec.persistable = true;
  b.root().declare(name, std::move(spec));
  return Ok();
}

// The name of the gradient that the update reads: the merged gradient, or the result of the ops
// before the update.
StatusOr<std::string> update_grad(PserverBuilder& b, Block& block, const Op& op,
                                  const ParamGrad& pair, const PlacedSlice& slice) {
  std::string grad = b.local_name(op.first_input("Grad"));
  if (grad != slice.server_grad && !block.has_writers(grad)) {
    return InvalidProgram(
               "the update of param '{}' reads gradient '{}', which its server does not "
               "compute from the gradient that the trainers send ('{}')",
               pair.param, grad, slice.server_grad)
        .at(op.location());
  }
  if (b.job.config.enable_dc_asgd) return append_dc_asgd(b, block, slice, pair, grad);
  return grad;
}

Status append_update(PserverBuilder& b, Block& block, const Op& op, uint32_t pair_index) {
  const ParamGrad& pair = b.job.pairs[pair_index];
  const PlacedSlice& slice = *b.owned(pair_index);
  MILLRACE_ASSIGN_OR_RETURN(const std::string grad, update_grad(b, block, op, pair, slice));
  Op& copy = block.append_clone(op);
  copy.set_string("op_namescope", "/");
  copy.remove_attr("op_callstack");
  for (const Slot& slot : op.inputs()) {
    const llvm::StringRef slot_name = op.name_of(slot.name);
    if (slot.args.empty()) {
      copy.remove_input(slot_name);
      continue;
    }
    if (slot_name == "Param") {
      copy.set_input(slot_name, llvm::StringRef(slice.param));
      continue;
    }
    if (slot_name == "Grad") {
      copy.set_input(slot_name, llvm::StringRef(grad));
      continue;
    }
    const bool plain = is_plain_optimizer_slot(slot_name);
    for (const Arg& arg : slot.args) {
      bool follows = false;
      if (!plain) {
        MILLRACE_ASSIGN_OR_RETURN(follows,
                                  accumulator_follows_param(op, slot_name, pair.is_sliced()));
      }
      MILLRACE_RETURN_IF_ERROR(
          declare_state(b, op, op.name_of(arg.name), follows ? &slice.slice.dims : nullptr));
    }
  }
  for (const Slot& slot : op.outputs()) {
    if (slot.args.empty()) copy.remove_output(op.name_of(slot.name));
  }
  copy.set_output("ParamOut", llvm::StringRef(slice.param));
  MILLRACE_RETURN_IF_ERROR(ops::infer_op(b.context.registry, copy));
  const Var* const grad_var = block.find_var_recursive(grad);
  if (grad_var != nullptr && grad_var->kind() == VarKind::kSelectedRows) {
    b.sparse_grad_to_param.push_back(grad + ":" + slice.param);
  }
  return Ok();
}

// Ops other than the update that keep a value for each element of the param.
bool keeps_elements(llvm::StringRef type) {
  constexpr std::array<llvm::StringLiteral, 20> kTypes = {"sum",
                                                          "elementwise_add",
                                                          "elementwise_sub",
                                                          "elementwise_mul",
                                                          "elementwise_div",
                                                          "elementwise_max",
                                                          "elementwise_min",
                                                          "scale",
                                                          "sign",
                                                          "abs",
                                                          "square",
                                                          "sqrt",
                                                          "clip",
                                                          "assign",
                                                          "cast",
                                                          "fill_constant",
                                                          "lookup_table",
                                                          "extract_rows",
                                                          "merge_selected_rows",
                                                          "average_accumulates"};
  return llvm::is_contained(kTypes, type);
}

// Appends regularization and the other optimize ops of one param.
Status append_other(PserverBuilder& b, Block& block, const Op& op, uint32_t pair_index) {
  const ParamGrad& pair = b.job.pairs[pair_index];
  if (pair.is_sliced() && !keeps_elements(op.type())) {
    return Unimplemented(
               "'{}' is run in addition to the update of the param '{}', which is sliced over "
               "servers, and needs more of it than one slice",
               op.type().str(), pair.param)
        .at(op.location())
        .with_hint("set slice_var_up to false");
  }
  const Block& origin = b.origin.root();
  for (const bool outputs : {false, true}) {
    for (const llvm::StringRef name : outputs ? op.output_names() : op.input_names()) {
      const Var* const var = origin.find_var(name);
      if (var == nullptr || !kept_var_follows_param(*var, origin, pair) ||
          b.root().find_var(name) != nullptr)
        continue;
      VarSpec spec = server_spec(*var);
      spec.dims.assign(b.owned(pair_index)->slice.dims.begin(),
                       b.owned(pair_index)->slice.dims.end());
      b.root().declare(name, std::move(spec));
    }
  }
  bool sliced = false;
  MILLRACE_ASSIGN_OR_RETURN(Op* const copy, b.copy_op(block, op, sliced));
  return ops::infer_op(b.context.registry, *copy);
}

Status build_block(PserverBuilder& b, uint32_t pair_index, int32_t parent) {
  const PlacedSlice& slice = *b.owned(pair_index);
  Block& block = b.program->add_block(parent);
  b.optimize_blocks.push_back(block.index());
  b.grad_to_block_id.push_back(slice.server_grad + ":" + std::to_string(block.index()));
  if (b.job.merges_per_trainer()) append_merge(b, block, slice);
  for (const Op* const op : b.job.ops_of_pair[pair_index]) {
    MILLRACE_RETURN_IF_ERROR(role::is_optimizer(*op) ? append_update(b, block, *op, pair_index)
                                                     : append_other(b, block, *op, pair_index));
  }
  return Ok();
}

}  // namespace

Status build_optimize_blocks(PserverBuilder& b) {
  // Optimizer ops whose param this server holds, in program order.
  std::vector<std::pair<const Op*, uint32_t>> updates;
  for (const OwnedSlice& owned : b.job.owned[b.server]) {
    for (const Op* const op : b.job.ops_of_pair[owned.pair]) {
      if (role::is_optimizer(*op)) updates.emplace_back(op, owned.pair);
    }
  }
  std::sort(updates.begin(), updates.end(),
            [](const auto& x, const auto& y) { return x.first->comes_before(*y.first); });
  const auto parent = static_cast<int32_t>(b.program->block_count()) - 1;
  for (const auto& [op, pair] : updates) MILLRACE_RETURN_IF_ERROR(build_block(b, pair, parent));
  return Ok();
}

std::string append_dc_asgd(PserverBuilder& b, Block& block, const PlacedSlice& owned,
                           const ParamGrad& pair, const std::string& grad) {
  const VarSpec spec = plain_spec(pair.param_kind, pair.dtype, owned.slice.dims);
  const std::string backup = names::dc_local_backup(owned.param);
  const std::string trainer_id = "@TRAINER_ID@";
  block.declare(backup, spec);
  block.declare(trainer_id, VarSpec::tensor(DType::kInt64, {1}));
  std::vector<std::string> backups;
  for (int64_t trainer = 0; trainer < b.job.trainers; ++trainer) {
    backups.push_back(names::dc_backup(owned.param, trainer));
  }
  Op& pick = block.append_op("ref_by_trainer_id");
  pick.set_input("X", backups)
      .set_input("TrainerId", llvm::StringRef(trainer_id))
      .set_output("Out", llvm::StringRef(backup));
  finish(pick, role::kForward);
  auto binary = [&](llvm::StringRef type, const std::string& x, const std::string& y) {
    std::string out = names::dc_output(b.next_dc_output++);
    block.declare(out, spec);
    Op& op = block.append_op(type);
    op.set_input("X", llvm::StringRef(x))
        .set_input("Y", llvm::StringRef(y))
        .set_output("Out", llvm::StringRef(out))
        .set_int("axis", -1)
        .set_float("Scale_x", 1.0F)
        .set_float("Scale_y", 1.0F)
        .set_float("Scale_out", 1.0F)
        .set_string("mkldnn_data_type", "float32");
    finish(op, role::kForward);
    return out;
  };
  const std::string drift = binary("elementwise_sub", owned.param, backup);
  const std::string once = binary("elementwise_mul", drift, grad);
  const std::string twice = binary("elementwise_mul", once, grad);
  return binary("elementwise_add", grad, twice);
}

}  // namespace millrace::transpiler
