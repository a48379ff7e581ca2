#include "interchange/pir/state.h"

#include <set>

#include "framework/names.h"
#include "framework/op.h"
#include "framework/op_attrs.h"
#include "framework/program.h"
#include "interchange/source_program.h"

namespace millrace::interchange::pir {
namespace {

// The role of ops that compute a loss: forward, with the bit for losses.
constexpr int32_t kLossRole = 0x100;

// Names that the ops of a block, or of blocks in it, read or write and that outer blocks declare.
void add_outer_names(const Block& block, std::set<std::string>& names) {
  const auto add = [&](llvm::StringRef name) {
    if (block.find_var(name) == nullptr) names.insert(name.str());
  };
  for (const Op& op : block.ops()) {
    for (const llvm::StringRef name : op.input_names()) add(name);
    for (const llvm::StringRef name : op.output_names()) add(name);
    if (const Block* const inner = owned_block(op); inner != nullptr) {
      std::set<std::string> inner_names;
      add_outer_names(*inner, inner_names);
      for (const std::string& name : inner_names) add(name);
    }
  }
}

bool is_tensor(const Var& var) {
  return var.kind() == VarKind::kLodTensor || var.kind() == VarKind::kSelectedRows;
}

}  // namespace

ProgramState state_of(const Block& root) {
  std::set<std::string> needed;
  std::set<std::string> written;
  const auto need = [&](const std::string& name) {
    if (!written.contains(name)) needed.insert(name);
  };
  for (const Op& op : root.ops()) {
    if (op.type() == "fetch") continue;
    std::set<std::string> inner;
    if (const Block* const block = owned_block(op); block != nullptr)
      add_outer_names(*block, inner);
    if (op.type() != "feed")
      for (const llvm::StringRef name : op.input_names()) need(name.str());
    for (const std::string& name : inner) {
      const Var* const var = root.find_var(name);
      if (op.reads(name) || (var != nullptr && var->persistable())) need(name);
    }
    for (const llvm::StringRef name : op.output_names()) written.insert(name.str());
    written.insert(inner.begin(), inner.end());
  }
  ProgramState state;
  for (const Var& var : root.vars()) {
    const std::string name = var.name().str();
    if (!is_tensor(var) || !var.spec().has_tensor()) continue;
    if (needed.contains(name)) {
      (var.persistable() ? state.stored : state.fed).push_back(name);
    } else if (var.persistable() && written.contains(name)) {
      state.made.push_back(name);
    }
  }
  return state;
}

std::vector<std::string> natural_results(const Block& root) {
  std::vector<std::string> losses;
  std::vector<std::string> unread;
  for (const Op& op : root.ops()) {
    const bool is_loss = get_attr_or<int32_t>(op, "op_role", 0) == kLossRole;
    for (const llvm::StringRef name : op.output_names()) {
      const Var* const var = root.find_var(name);
      if (var == nullptr || var->kind() != VarKind::kLodTensor) continue;
      if (is_loss) losses.push_back(name.str());
      if (!var->persistable() && !root.has_readers(name)) unread.push_back(name.str());
    }
  }
  return losses.empty() ? unread : losses;
}

}  // namespace millrace::interchange::pir
