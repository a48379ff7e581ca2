#include "ops/backward/grad_vars.h"

#include <algorithm>

#include "framework/names.h"
#include "framework/op_attrs.h"
#include "framework/program.h"

namespace millrace::ops::backward {

// A quirk of the original: conditional_block_grad also declares the placeholder @EMPTY@, with the
// type of the last input whose gradient it replaces.
DType placeholder_dtype(const Op& op) {
  const auto inputs = op.input("Input");
  const auto grads = op.output("Input@GRAD");
  DType dtype = DType::kFloat32;
  for (size_t i = 0; i < std::min(inputs.size(), grads.size()); ++i) {
    const Var* const var = op.block().find_var_recursive(inputs[i]);
    if (grads[i] == names::kEmpty && var != nullptr && var->spec().has_tensor())
      dtype = var->dtype();
  }
  return dtype;
}

// "grad/grad/x@GRAD@RENAME@block0@1" has the shape of x.
void declare_like_forward(Block& block, llvm::StringRef grad) {
  llvm::StringRef forward = grad.split("@GRAD").first;
  while (forward.consume_front("grad/")) {
  }
  // in a time step, the forward block hides the sequence of the same name outside
  const auto index = static_cast<size_t>(std::max(block.forward_block().value_or(0), 0));
  const Var* like = index == 0 ? nullptr : block.program().block(index).find_var_recursive(forward);
  if (like == nullptr) like = block.find_var_recursive(forward);
  VarSpec spec = like == nullptr ? VarSpec::tensor(DType::kFloat32, {}) : like->spec();
  spec.persistable.reset();
  spec.is_parameter.reset();
  spec.need_check_feed.reset();
  spec.stop_gradient = false;
  block.declare(grad, std::move(spec));
}

// A sparse look-up produces selected rows, and so does a sum of selected rows only.
void set_rows_kind(const Op& op, Block& block) {
  const bool lookup = op.type() == "lookup_table_grad" || op.type() == "lookup_table_v2_grad";
  bool rows = lookup && get_attr_or<bool>(op, "is_sparse", false);
  if (op.type() == "sum") {
    rows = llvm::all_of(op.input_names(), [&](llvm::StringRef name) {
      const Var* const var = block.find_var_recursive(name);
      return var != nullptr && var->kind() == VarKind::kSelectedRows;
    });
  }
  if (!rows) return;
  for (const llvm::StringRef name : op.output_names()) {
    Var* const var = block.find_var(name);
    if (var == nullptr) continue;
    VarSpec spec = var->spec();
    spec.kind = VarKind::kSelectedRows;
    spec.form = TensorForm::kSelectedRows;
    spec.lod_level.reset();
    var->set_spec(std::move(spec));
  }
}

}  // namespace millrace::ops::backward
