#include <llvm/ADT/STLExtras.h>

#include "framework/base/errors.h"
#include "framework/op_attrs.h"
#include "ops/renamed_attrs.h"
#include "transpiler/upgrade/upgrade.h"

namespace millrace::transpiler {
namespace {

struct RenamedSlot {
  llvm::StringRef op;
  llvm::StringRef from;
  llvm::StringRef to;  ///< empty: the slot was withdrawn, because nothing used it
};

constexpr RenamedSlot kRenamedOutputs[] = {
    {"cudnn_lstm", "last_h", "LastH"},
    {"cudnn_lstm", "last_c", "LastC"},
    {"generate_proposals", "RpnRoisLod", ""},
};

constexpr RenamedSlot kRenamedInputs[] = {
    {"roi_align", "RpnRoisLod", ""},
    {"roi_pool", "RpnRoisLod", ""},
};

bool rename_attrs(Op& op) {
  bool changed = false;
  for (const ops::RenamedAttr& entry : ops::renamed_attrs()) {
    if (!ops::is_op_or_gradient(op.type(), entry.op)) continue;
    const AttrValue* const old = op.find_attr(entry.from);
    if (old == nullptr) continue;
    const AttrValue value = *old;
    op.remove_attr(entry.from);
    if (!op.has_attr(entry.to)) op.set_attr(entry.to, value);
    changed = true;
  }
  return changed;
}

// allclose had its tolerances as floats, which cannot say 1e-8 exactly; they became texts.
bool spell_tolerances(Op& op) {
  bool changed = false;
  for (const llvm::StringRef name : {"rtol", "atol"}) {
    const AttrValue* const old = op.find_attr(name);
    if (op.type() != "allclose" || old == nullptr || old->kind() != AttrKind::kFloat) continue;
    op.set_string(name, fmt::format("{}", old->float32()));
    changed = true;
  }
  return changed;
}

Status withdrawn_in_use(const Op& op, llvm::StringRef slot, llvm::StringRef name) {
  return Unimplemented("op {} uses slot '{}' (var '{}'), which release 2.6 no longer has",
                       op.type().str(), slot.str(), name.str())
      .at(op.location());
}

StatusOr<bool> rename_outputs(Op& op) {
  bool changed = false;
  for (const RenamedSlot& entry : kRenamedOutputs) {
    if (op.type() != entry.op || op.find_output(entry.from) == nullptr) continue;
    const auto names = op.output(entry.from);
    for (const llvm::StringRef name : names) {
      const bool read = llvm::any_of(op.program().blocks(),
                                     [&](const Block& block) { return block.has_readers(name); });
      if (entry.to.empty() && read) return withdrawn_in_use(op, entry.from, name);
    }
    if (!entry.to.empty() && op.find_output(entry.to) == nullptr) op.set_output(entry.to, names);
    op.remove_output(entry.from);
    changed = true;
  }
  return changed;
}

StatusOr<bool> rename_inputs(Op& op) {
  bool changed = false;
  for (const RenamedSlot& entry : kRenamedInputs) {
    if (op.type() != entry.op || op.find_input(entry.from) == nullptr) continue;
    const auto names = op.input(entry.from);
    if (!names.empty()) return withdrawn_in_use(op, entry.from, names.front());
    op.remove_input(entry.from);
    changed = true;
  }
  return changed;
}

}  // namespace

StatusOr<bool> upgrade_attr_names(Program& program, PassContext& /*context*/) {
  bool changed = false;
  for (Block& block : program.blocks()) {
    for (Op& op : block.ops()) {
      changed |= rename_attrs(op);
      changed |= spell_tolerances(op);
      MILLRACE_ASSIGN_OR_RETURN(const bool outputs, rename_outputs(op));
      MILLRACE_ASSIGN_OR_RETURN(const bool inputs, rename_inputs(op));
      changed |= outputs || inputs;
    }
  }
  return changed;
}

}  // namespace millrace::transpiler
