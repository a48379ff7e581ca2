#include "transpiler/needed_ops.h"

#include <llvm/ADT/STLExtras.h>

namespace millrace::transpiler {

llvm::SmallVector<int32_t, 2> owned_blocks(const Op& op) {
  llvm::SmallVector<int32_t, 2> out;
  const auto count = static_cast<int64_t>(op.program().block_count());
  const auto add = [&](int64_t index) {
    if (index > 0 && index < count) out.push_back(static_cast<int32_t>(index));
  };
  for (const Attr& attr : op.attrs()) {
    if (attr.missing_value) continue;
    if (attr.value.kind() == AttrKind::kBlock) add(attr.value.integer());
    if (attr.value.kind() == AttrKind::kBlocks) llvm::for_each(attr.value.ints(), add);
  }
  return out;
}

NeededOps::NeededOps(const Program& program, const NeedRules& rules)
    : program_(program), rules_(rules), walking_(program.block_count(), false) {
  const auto add = [&](const std::vector<std::string>& from, llvm::DenseSet<NameId>& to) {
    for (const std::string& name : from) {
      if (const auto id = program.names().find(name)) to.insert(*id);
    }
  };
  add(rules.feeds, feeds_);
  add(rules.targets, names_);
  if (program.block_count() > 0) walk(program.root());
}

// walk(), visit() and walk_owned_blocks() return whether they added anything.

bool NeededOps::add_name(NameId name) {
  return !feeds_.contains(name) && names_.insert(name).second;
}

bool NeededOps::walk(const Block& block) {
  const auto index = static_cast<size_t>(block.index());
  if (walking_[index]) return false;
  walking_[index] = true;
  bool added = false;
  for (const Op& op : llvm::reverse(block.ops())) added |= visit(op);
  walking_[index] = false;
  return added;
}

bool NeededOps::visit(const Op& op) {
  bool needed = contains(op) || rules_.is_root(op);
  if (!needed && !(rules_.not_by_outputs && rules_.not_by_outputs(op))) {
    needed = llvm::any_of(op.outputs(), [&](const Slot& slot) {
      return llvm::any_of(slot.args, [&](const Arg& arg) { return names_.contains(arg.name); });
    });
  }
  bool added = needed && needed_.insert(&op).second;
  const auto add_inputs = [&] {
    for (const Slot& slot : op.inputs()) {
      for (const Arg& arg : slot.args) added |= add_name(arg.name);
    }
  };
  if (needed) add_inputs();
  if (walk_owned_blocks(op)) {
    added = true;
    if (!needed && needed_.insert(&op).second) add_inputs();
  }
  return added;
}

bool NeededOps::walk_owned_blocks(const Op& op) {
  const llvm::SmallVector<int32_t, 2> blocks = owned_blocks(op);
  if (blocks.empty()) return false;
  bool added = false;
  if (contains(op)) {
    // Outputs and the vars that attributes name (states of a recurrent op) are written in the owned
    // blocks.
    for (const Slot& slot : op.outputs()) {
      for (const Arg& arg : slot.args) added |= add_name(arg.name);
    }
    for (const Attr& attr : op.attrs()) {
      const AttrKind kind = attr.value.kind();
      if (kind != AttrKind::kStrings && kind != AttrKind::kVars) continue;
      for (const std::string& text : attr.value.strings()) {
        if (const auto id = program_.names().find(text)) added |= add_name(*id);
      }
    }
  }
  for (bool again = true; again;) {
    again = false;
    for (const int32_t index : llvm::reverse(blocks)) again |= walk(program_.block(index));
    added |= again;
  }
  return added;
}

size_t NeededOps::erase_others(Program& program) const {
  size_t erased = 0;
  for (Block& block : program.blocks()) {
    for (Op* const op : block.op_vector()) {
      if (contains(*op)) continue;
      block.erase(*op);
      ++erased;
    }
  }
  return erased;
}

}  // namespace millrace::transpiler
