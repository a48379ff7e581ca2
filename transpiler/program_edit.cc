#include "transpiler/program_edit.h"

#include <llvm/ADT/STLExtras.h>

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "transpiler/needed_ops.h"

namespace millrace::transpiler {
namespace {

// Attributes of the parameter server's op that contain block numbers but are not of a block kind.
bool numbers_blocks(const Op& op) {
  return llvm::any_of(
      llvm::ArrayRef({"grad_to_block_id", "prefetch_var_name_to_block_id", "lr_decay_block_id",
                      "checkpint_block_id", "checkpoint_block_id"}),
      [&](const char* name) { return op.has_attr(name); });
}

// String attributes that do not contain var names, or contain them only as information.
bool is_remark(llvm::StringRef attr) {
  return attr == "op_callstack" || attr == "op_role_var" || attr == "op_namescope" ||
         attr == "op_device";
}

void add_names_of_attrs(const Op& op, llvm::DenseSet<NameId>& names) {
  const NameTable& table = op.program().names();
  const auto add = [&](llvm::StringRef text) {
    if (const auto id = table.find(text)) names.insert(*id);
    // "w@GRAD:3" pairs a var with a block
    const auto [var, number] = text.rsplit(':');
    if (number.empty()) return;
    if (const auto id = table.find(var)) names.insert(*id);
  };
  for (const Attr& attr : op.attrs()) {
    const AttrKind kind = attr.value.kind();
    if (attr.missing_value || is_remark(op.name_of(attr.name))) continue;
    if (kind == AttrKind::kString || kind == AttrKind::kVar) add(attr.value.string());
    if (kind == AttrKind::kStrings || kind == AttrKind::kVars)
      llvm::for_each(attr.value.strings(), add);
  }
}

void add_names_of_slots(const Op& op, llvm::DenseSet<NameId>& names) {
  for (const auto& slots : {op.inputs(), op.outputs()}) {
    for (const Slot& slot : slots) {
      for (const Arg& arg : slot.args) names.insert(arg.name);
    }
  }
}

}  // namespace

size_t erase_unowned_blocks(Program& program) {
  const size_t count = program.block_count();
  if (count <= 1) return 0;
  llvm::SmallVector<bool, 8> keep(count, false);
  llvm::SmallVector<size_t, 8> work;
  const auto reach = [&](int32_t index) {
    if (index < 0 || static_cast<size_t>(index) >= count || keep[static_cast<size_t>(index)])
      return;
    keep[static_cast<size_t>(index)] = true;
    work.push_back(static_cast<size_t>(index));
  };
  reach(0);
  while (!work.empty()) {
    const Block& block = program.block(work.pop_back_val());
    reach(block.parent());
    if (block.forward_block()) reach(*block.forward_block());
    for (const Op& op : block.ops()) {
      if (numbers_blocks(op)) return 0;
      llvm::for_each(owned_blocks(op), reach);
    }
  }
  const auto erased = static_cast<size_t>(llvm::count(keep, false));
  if (erased > 0) program.retain_blocks(keep);
  return erased;
}

llvm::DenseSet<NameId> names_outside_root(const Program& program) {
  llvm::DenseSet<NameId> names;
  for (const Block& block : program.blocks()) {
    for (const Op& op : block.ops()) {
      if (block.index() != 0) add_names_of_slots(op, names);
      add_names_of_attrs(op, names);
    }
  }
  return names;
}

llvm::DenseSet<NameId> mentioned_names(const Program& program) {
  llvm::DenseSet<NameId> names;
  for (const Block& block : program.blocks()) {
    for (const Op& op : block.ops()) {
      add_names_of_slots(op, names);
      add_names_of_attrs(op, names);
    }
  }
  return names;
}

size_t erase_unmentioned_vars(Program& program, const std::vector<std::string>& keep,
                              bool persistable) {
  const llvm::DenseSet<NameId> mentioned = mentioned_names(program);
  size_t erased = 0;
  for (Block& block : program.blocks()) {
    for (Var& var : llvm::make_early_inc_range(block.vars())) {
      if (mentioned.contains(var.id()) || (var.persistable() && !persistable) ||
          llvm::is_contained(keep, var.name()))
        continue;
      block.erase(var);
      ++erased;
    }
  }
  return erased;
}

bool is_known_var(const Program& program, llvm::StringRef name) {
  return llvm::any_of(program.blocks(), [&](const Block& block) {
    return block.find_var(name) != nullptr || block.has_writers(name);
  });
}

bool only_output_read(const Op& op, llvm::StringRef out) {
  return llvm::all_of(op.output_names(), [&](llvm::StringRef name) {
    return name == out || llvm::none_of(op.program().blocks(), [&](const Block& block) {
             return block.has_readers(name);
           });
  });
}

Status no_such_var(const Program& program, llvm::StringRef name, llvm::StringRef option) {
  std::vector<std::string_view> names;
  for (const Block& block : program.blocks()) {
    for (const Var& var : block.vars()) names.emplace_back(var.name());
  }
  const std::string nearest = nearest_name(std::string_view(name), names);
  return NotFound("option '{}' names the var '{}', which the program does not have", option.str(),
                  name.str())
      .with_hint(nearest.empty() ? "" : "did you mean '" + nearest + "'?");
}

}  // namespace millrace::transpiler
