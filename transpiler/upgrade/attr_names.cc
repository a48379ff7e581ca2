#include <llvm/ADT/STLExtras.h>

#include "framework/base/errors.h"
#include "framework/op_attrs.h"
#include "ops/old_forms.h"
#include "transpiler/upgrade/upgrade.h"

namespace millrace::transpiler {
namespace {

struct RenamedSlot {
  llvm::StringRef op;
  llvm::StringRef from;
  llvm::StringRef to;
};

constexpr RenamedSlot kRenamedOutputs[] = {
    {"cudnn_lstm", "last_h", "LastH"},
    {"cudnn_lstm", "last_c", "LastC"},
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

// Numbers that became strings.
bool spell_numbers(Op& op) {
  bool changed = false;
  for (const llvm::StringRef name : {"rtol", "atol"}) {
    const AttrValue* const old = op.find_attr(name);
    if (old == nullptr || !ops::is_old_kind(op.type(), name, old->kind())) continue;
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

bool rename_outputs(Op& op) {
  bool changed = false;
  for (const RenamedSlot& entry : kRenamedOutputs) {
    if (op.type() != entry.op || op.find_output(entry.from) == nullptr) continue;
    if (op.find_output(entry.to) == nullptr) op.set_output(entry.to, op.output(entry.from));
    op.remove_output(entry.from);
    changed = true;
  }
  return changed;
}

StatusOr<bool> remove_withdrawn_outputs(Op& op) {
  bool changed = false;
  for (const ops::WithdrawnOutput& entry : ops::withdrawn_outputs()) {
    if (op.type() != entry.op || op.find_output(entry.slot) == nullptr) continue;
    for (const llvm::StringRef name : op.output(entry.slot)) {
      const bool read = llvm::any_of(op.program().blocks(),
                                     [&](const Block& block) { return block.has_readers(name); });
      if (read) return withdrawn_in_use(op, entry.slot, name);
    }
    op.remove_output(entry.slot);
    changed = true;
  }
  return changed;
}

StatusOr<bool> remove_withdrawn_inputs(Op& op) {
  constexpr const char* kSlot = "RpnRoisLod";
  const bool had_it = op.type() == "roi_align" || op.type() == "roi_pool";
  if (!had_it || op.find_input(kSlot) == nullptr) return false;
  const auto names = op.input(kSlot);
  if (!names.empty()) return withdrawn_in_use(op, kSlot, names.front());
  op.remove_input(kSlot);
  return true;
}

}  // namespace

StatusOr<bool> upgrade_attr_names(Program& program, PassContext& /*context*/) {
  bool changed = false;
  for (Block& block : program.blocks()) {
    for (Op& op : block.ops()) {
      changed |= rename_attrs(op);
      changed |= spell_numbers(op);
      changed |= rename_outputs(op);
      MILLRACE_ASSIGN_OR_RETURN(const bool outputs, remove_withdrawn_outputs(op));
      MILLRACE_ASSIGN_OR_RETURN(const bool inputs, remove_withdrawn_inputs(op));
      changed |= outputs || inputs;
    }
  }
  return changed;
}

}  // namespace millrace::transpiler
