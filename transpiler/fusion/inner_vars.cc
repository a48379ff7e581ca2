#include "transpiler/fusion/inner_vars.h"

#include <llvm/ADT/STLExtras.h>

#include "framework/names.h"
#include "transpiler/program_edit.h"

namespace millrace::transpiler {
namespace {

llvm::StringRef single(const Op& op, const Slot* slot) {
  if (slot == nullptr || slot->args.size() != 1) return {};
  const llvm::StringRef name = op.name_of(slot->args.front().name);
  return name == names::kEmpty ? llvm::StringRef() : name;
}

// Number of times that the inputs of an op name a var.
size_t count_reads(const Op& op, llvm::StringRef name) {
  return static_cast<size_t>(llvm::count(op.input_names(), name));
}

}  // namespace

InnerVars::InnerVars(Program& program, const std::vector<std::string>& keep)
    : block_(program.root()), outside_(names_outside_root(program)) {
  for (const std::string& name : keep) {
    if (const auto id = program.names().find(name)) outside_.insert(*id);
  }
  // Results are returned under the names of the vars that fetch ops read.
  for (const Op& op : block_.ops()) {
    if (op.type() != "fetch" && op.type() != "fetch_v2") continue;
    for (const Slot& slot : op.inputs())
      for (const Arg& arg : slot.args) outside_.insert(arg.name);
  }
}

bool InnerVars::contains(llvm::StringRef name) const {
  return writer(name) != nullptr;
}

Op* InnerVars::writer(llvm::StringRef name) const {
  if (!is_plain(name)) return nullptr;
  const Var* const var = block_.find_var(name);
  if (var->persistable() || var->kind() != VarKind::kLodTensor) return nullptr;
  const auto writers = block_.writers_of(name);
  if (writers.size() != 1 || writers.front()->reads(name)) return nullptr;
  const auto readers = block_.readers_of(name);
  if (!readers.empty() && !writers.front()->comes_before(*readers.front())) return nullptr;
  return writers.front();
}

Op* InnerVars::only_reader(llvm::StringRef name) const {
  if (!contains(name)) return nullptr;
  const auto readers = block_.readers_of(name);
  if (readers.size() != 1 || count_reads(*readers.front(), name) != 1) return nullptr;
  return readers.front();
}

bool InnerVars::is_plain(llvm::StringRef name) const {
  const Var* const var = name.empty() ? nullptr : block_.find_var(name);
  return var != nullptr && !outside_.contains(var->id());
}

bool InnerVars::is_needed_after(llvm::StringRef name) const {
  const Var* const var = name.empty() ? nullptr : block_.find_var(name);
  return var != nullptr && (var->persistable() || outside_.contains(var->id()));
}

void InnerVars::erase_outputs(Op& op, llvm::StringRef but) const {
  llvm::SmallVector<Var*, 2> gone;
  for (const llvm::StringRef name : op.output_names()) {
    if (name != but && writer(name) == &op) gone.push_back(block_.find_var(name));
  }
  llvm::SmallVector<std::string, 2> slots;
  for (const Slot& slot : op.outputs()) slots.push_back(op.name_of(slot.name).str());
  for (const std::string& slot : slots) op.remove_output(slot);
  for (Var* const var : gone) block_.erase(*var);
}

void InnerVars::erase(Op& op, llvm::StringRef but) const {
  erase_outputs(op, but);
  block_.erase(op);
}

void turn_into(Op& op, llvm::StringRef type) {
  const auto slots = [&op](llvm::ArrayRef<Slot> from) {
    llvm::SmallVector<std::string, 4> names;
    for (const Slot& slot : from) names.push_back(op.name_of(slot.name).str());
    return names;
  };
  for (const std::string& slot : slots(op.inputs())) op.remove_input(slot);
  for (const std::string& slot : slots(op.outputs())) op.remove_output(slot);
  llvm::SmallVector<std::string, 8> attrs;
  for (const Attr& attr : op.attrs()) {
    const llvm::StringRef name = op.name_of(attr.name);
    if (!name.startswith("op_")) attrs.push_back(name.str());
  }
  for (const std::string& attr : attrs) op.remove_attr(attr);
  op.set_type(type);
}

bool is_f32(const Var* var) {
  return var != nullptr && var->spec().has_tensor() && var->dtype() == DType::kFloat32;
}

bool is_written_elsewhere(const Block& block, llvm::StringRef name) {
  return llvm::any_of(block.program().blocks(), [&](const Block& other) {
    return &other != &block && other.has_writers(name) && other.find_var(name) == nullptr;
  });
}

bool inputs_unchanged(const Op& first, const Op& last) {
  return llvm::all_of(first.input_names(), [&](llvm::StringRef name) {
    if (is_written_elsewhere(first.block(), name)) return false;
    return llvm::none_of(first.block().writers_of(name), [&](const Op* writer) {
      return !writer->comes_before(first) && writer->comes_before(last);
    });
  });
}

llvm::StringRef single_input(const Op& op, llvm::StringRef slot) {
  return single(op, op.find_input(slot));
}
llvm::StringRef single_output(const Op& op, llvm::StringRef slot) {
  return single(op, op.find_output(slot));
}

}  // namespace millrace::transpiler
