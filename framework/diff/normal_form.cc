#include "framework/diff/normal_form.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>
#include <llvm/ADT/STLExtras.h>

#include "framework/text_form/print.h"

namespace millrace::diff {
namespace {

constexpr const char* kControl = "__control_var";

std::map<llvm::StringRef, Names> slots_of(const Op& op, llvm::ArrayRef<Slot> slots) {
  std::map<llvm::StringRef, Names> out;
  for (const Slot& slot : slots) {
    if (slot.args.empty()) continue;
    Names& names = out[op.name_of(slot.name)];
    names.clear();  // if a slot is listed twice, the last one counts
    for (const Arg& arg : slot.args) names.push_back(op.name_of(arg.name));
  }
  return out;
}

NormalOp normal_op(const Op& op, int64_t index, const DiffOptions& options) {
  NormalOp out;
  out.index = index;
  out.type = op.type();
  out.inputs = slots_of(op, op.inputs());
  out.outputs = slots_of(op, op.outputs());
  for (const Attr& attr : op.attrs()) {
    const llvm::StringRef name = op.name_of(attr.name);
    if (name == "op_callstack" || name == "with_quant_attr") continue;
    if (options.ignore_attrs.count(name.str()) == 0) out.attrs[name] = &attr.value;
  }
  return out;
}

// Calls each(name) for every argument: inputs, then outputs, each ordered by slot name.
template <typename Each>
void for_each_arg(const NormalOp& op, Each each) {
  for (const auto* slots : {&op.inputs, &op.outputs}) {
    for (const auto& [slot, names] : *slots)
      for (const llvm::StringRef name : names) each(name);
  }
}

llvm::StringRef first_data_arg(const NormalOp& op) {
  llvm::StringRef found;
  for_each_arg(op, [&](llvm::StringRef name) {
    if (found.data() == nullptr && !is_control_name(name)) found = name;
  });
  return found;
}

}  // namespace

bool is_control_name(llvm::StringRef name) {
  return name.startswith(kControl);
}

llvm::StringRef NormalForm::keep(std::string name) {
  return kept_.emplace_back(std::move(name));
}

NormalForm::NormalForm(const Program& program, const DiffOptions& options,
                       const std::map<std::string, std::string>& rename) {
  for (const Block& block : program.blocks()) {
    NormalBlock& out = blocks_.emplace_back();
    out.index = block.stated_index();
    out.parent = block.parent();
    out.forward = block.forward_block().value_or(-1);
    for (const Var& var : block.vars()) out.vars[var.name()] = &var;
    int64_t index = 0;
    for (const Op& op : block.ops()) out.ops.push_back(normal_op(op, index++, options));
  }
  Renames given;
  for (const auto& [from, to] : rename) given[keep(from)] = keep(to);
  if (!given.empty()) apply(given, /*sort_controls=*/false);
  const Renames controls = control_names();
  if (!controls.empty()) apply(controls, /*sort_controls=*/true);
}

// New names for control vars, built from the type and the first data argument of the op that writes
// them, so that two programs with different numbering compare equal.
NormalForm::Renames NormalForm::control_names() {
  Renames names;
  std::map<std::string, int> used;
  for (const NormalBlock& block : blocks_) {
    for (const NormalOp& op : block.ops) {
      for (const auto& [slot, args] : op.outputs) {
        for (const llvm::StringRef arg : args) {
          if (!is_control_name(arg) || names.count(arg) != 0) continue;
          const llvm::StringRef data = first_data_arg(op);
          std::string name = fmt::format("{}:{}", kControl, op.type.str());
          if (data.data() != nullptr) name += fmt::format("({})", data.str());
          const int count = ++used[name];
          if (count > 1) name += fmt::format("#{}", count);
          names[arg] = keep(std::move(name));
        }
      }
    }
  }
  name_unwritten(names);
  return names;
}

// Names control vars that no op writes: first those that are read, in reading order, then those
// that are only declared, by name.
void NormalForm::name_unwritten(Renames& names) {
  std::multiset<llvm::StringRef> loose;
  for (const NormalBlock& block : blocks_) {
    for (const auto& [name, var] : block.vars)
      if (is_control_name(name) && names.count(name) == 0) loose.insert(name);
  }
  for (const NormalBlock& block : blocks_) {
    for (const NormalOp& op : block.ops) {
      for_each_arg(op, [&](llvm::StringRef arg) {
        const auto it = loose.find(arg);
        if (it == loose.end()) return;
        loose.erase(it);
        names[arg] = keep(fmt::format("{}:unwritten#{}", kControl, names.size()));
      });
    }
  }
  size_t count = 0;
  for (const llvm::StringRef name : loose)
    names[name] = keep(fmt::format("{}:unused#{}", kControl, count++));
}

void NormalForm::apply(const Renames& names, bool sort_controls) {
  const auto renamed = [&](llvm::StringRef name) {
    const auto it = names.find(name);
    return it == names.end() ? name : it->second;
  };
  for (NormalBlock& block : blocks_) {
    std::map<llvm::StringRef, const Var*> vars;
    for (const auto& [name, var] : block.vars) vars[renamed(name)] = var;
    block.vars = std::move(vars);
    for (NormalOp& op : block.ops) {
      for (auto* slots : {&op.inputs, &op.outputs}) {
        for (auto& [slot, args] : *slots) {
          for (llvm::StringRef& arg : args) arg = renamed(arg);
          if (sort_controls && llvm::all_of(args, is_control_name)) llvm::sort(args);
        }
      }
    }
  }
}

std::string var_facts(const Var& var, const DiffOptions& options, bool with_dims) {
  const VarSpec& spec = var.spec();
  VarSpec shown;
  shown.kind = spec.kind;
  // Strings, vocabularies and sparse tensors are compared by kind alone.
  const bool described = spec.form == TensorForm::kLodTensor ||
                         spec.form == TensorForm::kSelectedRows ||
                         spec.form == TensorForm::kTensorArray;
  if (described) {
    shown.form = TensorForm::kLodTensor;
    shown.dtype = spec.dtype;
    if (with_dims) shown.dims = spec.dims;
    if (spec.lod_level.value_or(0) != 0) shown.lod_level = spec.lod_level;
  }
  std::string out = print_var_type(shown);
  if (spec.persistable == true) out += " persistable";
  if (spec.need_check_feed == true) out += " need_check_feed";
  if (spec.is_parameter == true) out += " is_parameter";
  if (options.strict_vars && spec.stop_gradient == true) out += " stop_gradient";
  return out;
}

}  // namespace millrace::diff
