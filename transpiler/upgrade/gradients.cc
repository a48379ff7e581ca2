#include <llvm/ADT/STLExtras.h>
#include <llvm/ADT/SmallVector.h>

#include "framework/base/errors.h"
#include "framework/op_attrs.h"
#include "transpiler/upgrade/forward_op.h"
#include "transpiler/upgrade/new_var.h"
#include "transpiler/upgrade/upgrade.h"

namespace millrace::transpiler {
namespace {

// The names that release 2.6 requires in a slot of a gradient op, taken from its forward op.
llvm::SmallVector<llvm::StringRef, 4> forward_names(const Op& forward, llvm::StringRef slot) {
  if (forward.find_input(slot) != nullptr) return forward.input(slot);
  return forward.output(slot);
}

// If the forward op lacks the slot too, the gradient op does without it.
bool add_forward_inputs(Op& gradient, const Op& forward, llvm::ArrayRef<llvm::StringRef> slots) {
  bool changed = false;
  for (const llvm::StringRef slot : slots) {
    const auto names = forward_names(forward, slot);
    if (names.empty()) continue;
    gradient.set_input(slot, names);
    changed = true;
  }
  return changed;
}

// An attribute that only passes of this project write; absent means none.
constexpr llvm::StringRef kMillraceAttr = "whole_operands";

// Later releases fill in defaults of forward ops when they load a program, but not those of
// gradient ops.
bool add_default_attrs(Op& gradient, const ops::OpDef& def) {
  bool changed = false;
  for (const ops::AttrDef& attr : def.attrs()) {
    if (!attr.fallback || attr.name == kMillraceAttr || gradient.has_attr(attr.name)) continue;
    gradient.set_attr(attr.name, *attr.fallback);
    changed = true;
  }
  return changed;
}

// batch_norm must write ReserveSpace when it trains, and its gradient reads it.
bool add_reserve_space(Op& gradient, Op& forward) {
  bool changed = false;
  if (forward.find_output("ReserveSpace") == nullptr) {
    const std::string name = new_var(forward, forward.first_output("Y"), "reserve_space",
                                     VarSpec::tensor(DType::kFloat32, {-1}));
    forward.set_output("ReserveSpace", name);
    changed = true;
  }
  if (gradient.find_input("ReserveSpace") == nullptr) {
    gradient.set_input("ReserveSpace", forward.first_output("ReserveSpace"));
    changed = true;
  }
  return changed;
}

// The gradient op of data_norm updates the statistics; older ones had them as inputs.
bool add_statistics(Op& gradient, const Op& forward) {
  bool changed = false;
  for (const llvm::StringRef slot : {"BatchSize", "BatchSum", "BatchSquareSum"}) {
    if (gradient.find_output(slot) == nullptr) {
      gradient.set_output(slot, forward.input(slot));
      changed = true;
    }
  }
  return changed;
}

// Slots of the forward op that release 2.6 requires in the gradient op and that are missing there.
llvm::SmallVector<llvm::StringRef, 4> missing_slots(const Op& gradient,
                                                    const ops::OpDef& forward_def) {
  llvm::SmallVector<llvm::StringRef, 4> missing;
  if (!forward_def.grad_spec()) return missing;
  for (const llvm::StringRef slot : forward_def.grad_spec()->inputs) {
    if (!slot.endswith("@GRAD") && gradient.find_input(slot) == nullptr) missing.push_back(slot);
  }
  return missing;
}

bool must_be_there(const ops::OpDef& forward_def, llvm::StringRef slot) {
  const auto is_it = [&](const ops::SlotDef& def) {
    const bool needed = def.arity == ops::Arity::kOne || def.arity == ops::Arity::kMany;
    return def.name == slot && needed;
  };
  return llvm::any_of(forward_def.inputs(), is_it) || llvm::any_of(forward_def.outputs(), is_it);
}

StatusOr<bool> upgrade_gradient(Op& op, const ops::OpRegistry& registry) {
  llvm::StringRef type = op.type();
  if (!type.consume_back("_grad")) return false;
  const ops::OpDef* const def = registry.find(op.type());
  const ops::OpDef* const forward_def = registry.find(type);
  if (def == nullptr || forward_def == nullptr) return false;
  bool changed = add_default_attrs(op, *def);
  const auto missing = missing_slots(op, *forward_def);
  const bool has_more = type == "batch_norm" || type == "data_norm";
  if (missing.empty() && !has_more) return changed;
  MILLRACE_ASSIGN_OR_RETURN(Op* const forward, forward_op(op, type));
  if (forward == nullptr) {
    for (const llvm::StringRef slot : missing) {
      if (!must_be_there(*forward_def, slot)) continue;
      return Unimplemented("{} lacks {}, and no op of the program is its forward op",
                           op.type().str(), slot.str())
          .at(op.location());
    }
    return changed;
  }
  changed |= add_forward_inputs(op, *forward, missing);
  if (type == "batch_norm") changed |= add_reserve_space(op, *forward);
  if (type == "data_norm") changed |= add_statistics(op, *forward);
  return changed;
}

}  // namespace

StatusOr<bool> upgrade_gradients(Program& program, PassContext& context) {
  bool changed = false;
  for (Block& block : program.blocks()) {
    for (Op* const op : block.op_vector()) {
      MILLRACE_ASSIGN_OR_RETURN(const bool one, upgrade_gradient(*op, context.registry));
      changed |= one;
    }
  }
  return changed;
}

}  // namespace millrace::transpiler
