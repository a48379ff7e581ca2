#include <llvm/ADT/STLExtras.h>

#include "framework/base/errors.h"
#include "framework/names.h"
#include "framework/op_attrs.h"
#include "transpiler/upgrade/upgrade.h"

namespace millrace::transpiler {
namespace {

// The op whose gradient `gradient` is: the nearest before it of that type whose vars are those that
// the gradient op names, in the same block. Null if there is none.
Op* forward_op(Op& gradient, llvm::StringRef type) {
  const auto belongs = [&](const Op& op) {
    if (op.type() != type) return false;
    for (const Slot& slot : gradient.inputs()) {
      llvm::StringRef name = gradient.name_of(slot.name);
      const bool of_output = name.consume_back("@GRAD");
      const Slot* known = of_output ? op.find_output(name) : op.find_input(name);
      if (known == nullptr && !of_output) known = op.find_output(name);
      if (known == nullptr || known->args.size() != slot.args.size()) continue;
      for (size_t i = 0; i < slot.args.size(); ++i) {
        const llvm::StringRef have = gradient.name_of(slot.args[i].name);
        const llvm::StringRef want = op.name_of(known->args[i].name);
        // several gradients of one var have suffixes behind "@GRAD"
        if (of_output ? !have.startswith(names::grad(want)) && have != names::kEmpty : have != want)
          return false;
      }
    }
    return true;
  };
  for (Op* op = gradient.block().previous(gradient); op != nullptr;
       op = op->block().previous(*op)) {
    if (belongs(*op)) return op;
  }
  return nullptr;
}

// Names that release 2.6 wants in a slot of a gradient op, from its forward op.
llvm::SmallVector<llvm::StringRef, 4> forward_names(const Op& forward, llvm::StringRef slot) {
  if (forward.find_input(slot) != nullptr) return forward.input(slot);
  return forward.output(slot);
}

bool add_forward_inputs(Op& gradient, const Op& forward, llvm::ArrayRef<llvm::StringRef> slots) {
  bool changed = false;
  for (const llvm::StringRef slot : slots) {
    if (slot.endswith("@GRAD") || gradient.find_input(slot) != nullptr) continue;
    const auto names = forward_names(forward, slot);
    if (names.empty()) continue;
    gradient.set_input(slot, names);
    changed = true;
  }
  return changed;
}

// Attributes that only passes of this program write; absent means none.
constexpr llvm::StringRef kOwnAttr = "whole_operands";

// Later releases fill in defaults of forward ops when they load a program, and not those of
// gradient ops.
bool add_default_attrs(Op& gradient, const ops::OpDef& def) {
  bool changed = false;
  for (const ops::AttrDef& attr : def.attrs()) {
    if (!attr.fallback || attr.name == kOwnAttr || gradient.has_attr(attr.name)) continue;
    gradient.set_attr(attr.name, *attr.fallback);
    changed = true;
  }
  return changed;
}

// batch_norm must write ReserveSpace when it trains, and its gradient reads it.
bool add_reserve_space(Op& gradient, Op& forward) {
  if (forward.find_output("ReserveSpace") == nullptr) {
    const std::string name = names::upgraded(forward.first_output("Y"), "reserve_space");
    forward.block().declare(name, VarSpec::tensor(DType::kFloat32, {-1}));
    forward.set_output("ReserveSpace", name);
  }
  if (gradient.find_input("ReserveSpace") != nullptr) return false;
  gradient.set_input("ReserveSpace", forward.first_output("ReserveSpace"));
  return true;
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

StatusOr<bool> upgrade_gradient(Op& op, const ops::OpRegistry& registry) {
  llvm::StringRef type = op.type();
  if (!type.consume_back("_grad")) return false;
  const ops::OpDef* const def = registry.find(op.type());
  const ops::OpDef* const forward_def = registry.find(type);
  if (def == nullptr || forward_def == nullptr) return false;
  bool changed = add_default_attrs(op, *def);
  Op* const forward = forward_op(op, type);
  if (forward == nullptr) return changed;
  if (forward_def->grad_spec())
    changed |= add_forward_inputs(op, *forward, forward_def->grad_spec()->inputs);
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
