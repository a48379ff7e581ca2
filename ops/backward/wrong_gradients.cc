#include "ops/backward/wrong_gradients.h"

#include <llvm/ADT/STLExtras.h>

#include "framework/base/errors.h"
#include "framework/names.h"
#include "ops/backward/versions.h"

namespace millrace::ops::backward {
namespace {

// True for an overwritten integer that selects what is read (ids of a lookup). Counters are
// excluded: gradients count them back.
bool is_overwritten_choice(const Op& op, const Var& var, const Op& last) {
  const bool is_whole = var.kind() == VarKind::kLodTensor && var.spec().has_tensor() &&
                        (var.dtype() == DType::kInt32 || var.dtype() == DType::kInt64);
  return is_whole && sub_block_of(op) <= 0 && sub_block_of(last) <= 0 &&
         last.type() != "increment" && !op.type().endswith("_array");
}

void note_overwritten(const Op& op, const std::vector<GradOp>& made,
                      std::vector<Status>& warnings) {
  Names noted;
  for (const GradOp& grad : made) {
    for (const auto& [slot, names] : grad.inputs) {
      // conditional_block_grad lists slot Out but does not read it
      if (grad.type == "conditional_block_grad" && slot == "Out") continue;
      for (const std::string& name : names) {
        const Var* const var = op.block().find_var(name);
        if (var == nullptr || var->persistable() || is_grad_name(name)) continue;
        const Op* const last = op.block().last_writer(name);
        if (last == nullptr || !op.comes_before(*last)) continue;
        if (!is_dense_float(*var) && !is_overwritten_choice(op, *var, *last)) continue;
        if (!noted.insert(name).second) continue;
        warnings.push_back(
            InvalidProgram("the gradient of this op reads '{}', which op {} ({}) has overwritten "
                           "by then; gradients may be wrong, as in the original",
                           name, op.block().index_of(*last), last->type().str())
                .at(op.location()));
      }
    }
  }
}

bool any_reads(const std::vector<GradOp>& made, const std::string& name) {
  return llvm::any_of(made, [&](const GradOp& grad) {
    return llvm::any_of(grad.inputs,
                        [&](const auto& slot) { return llvm::is_contained(slot.second, name); });
  });
}

bool is_computed(const std::vector<PendingOp>& later, const std::string& name) {
  return llvm::any_of(later, [&](const PendingOp& pending) {
    bool found = false;
    pending.each_output([&](const std::string& output) { found |= output == name; });
    return found;
  });
}

void note_lost(const Op& op, const std::vector<GradOp>& made, const std::vector<PendingOp>& later,
               std::vector<Status>& warnings) {
  if (made.empty()) return;
  for (const llvm::StringRef name : op.output_names()) {
    const Var* const var = op.block().find_var_recursive(name);
    const std::string grad = names::grad(name);
    if (var == nullptr || !is_dense_float(*var) || any_reads(made, grad) ||
        !is_computed(later, grad))
      continue;
    Location where = op.location();
    where.var = name.str();
    warnings.push_back(
        InvalidProgram("the gradient of output '{}' is lost, as in the original: {} does not read "
                       "it; gradients lack the part that flows through this output",
                       name.str(), made.front().type)
            .at(std::move(where)));
  }
}

}  // namespace

void note_wrong_gradients(const Op& op, const std::vector<GradOp>& made,
                          const std::vector<PendingOp>& later, std::vector<Status>* warnings) {
  if (warnings == nullptr) return;
  if (op.block().index() == 0) note_overwritten(op, made, *warnings);
  note_lost(op, made, later, *warnings);
}

}  // namespace millrace::ops::backward
