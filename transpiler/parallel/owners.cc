#include "transpiler/parallel/owners.h"

#include <algorithm>
#include <set>

#include <llvm/ADT/StringMap.h>

#include "transpiler/distribute/roles.h"

namespace millrace::transpiler {
namespace {

void assign(std::vector<ParallelGrad>& grads, int devices) {
  std::vector<int64_t> load(static_cast<size_t>(devices), 0);
  for (ParallelGrad& grad : grads) {
    const auto least = std::min_element(load.begin(), load.end());
    grad.owner = static_cast<int>(least - load.begin());
    *least += grad.elements;
  }
}

// Owners of everything an optimizer op depends on: its own gradient, and what came from gradients.
std::set<int> owners_of(const Op& op, const llvm::StringMap<int>& owner_of_var) {
  std::set<int> owners;
  const auto add = [&](llvm::StringRef name) {
    const auto found = owner_of_var.find(name);
    if (found != owner_of_var.end()) owners.insert(found->second);
  };
  if (role::vars(op).size() == 2) add(role::vars(op)[1]);
  for (const llvm::StringRef name : op.input_names()) add(name);
  return owners;
}

// False if an op depends on several owners.
bool follow_gradients(Block& block, const std::vector<ParallelGrad>& grads, Ownership& result) {
  llvm::StringMap<int> owner_of_var;
  for (const ParallelGrad& grad : grads) owner_of_var[grad.grad] = grad.owner;
  for (Op& op : block.ops()) {
    if (!role::is_optimize_op(op)) continue;
    const std::set<int> owners = owners_of(op, owner_of_var);
    if (owners.empty()) continue;
    if (owners.size() > 1) return false;
    result.owner_of[&op] = *owners.begin();
    for (const llvm::StringRef name : op.output_names()) owner_of_var[name] = *owners.begin();
  }
  return true;
}

// Every device has every sum; the op that writes a parameter runs where its gradient would be.
void divide_only_updates(Block& block, const std::vector<ParallelGrad>& grads, Ownership& result) {
  llvm::StringMap<int> owner_of_param;
  for (const ParallelGrad& grad : grads) owner_of_param[grad.param] = grad.owner;
  for (Op& op : block.ops()) {
    if (!role::is_optimize_op(op) || !role::is_optimizer(op)) continue;
    const auto found = owner_of_param.find(op.first_input("Param"));
    if (found != owner_of_param.end()) result.owner_of[&op] = found->second;
  }
}

void find_sent(Block& block, int devices, Ownership& result) {
  result.sent.assign(static_cast<size_t>(devices), {});
  std::set<std::string> seen;
  for (Op& op : block.ops()) {
    const auto owner = result.owner_of.find(&op);
    if (owner == result.owner_of.end()) continue;
    for (const llvm::StringRef name : op.output_names()) {
      const auto readers = block.readers_of(name);
      const bool is_read = std::any_of(readers.begin(), readers.end(), [&](Op* reader) {
        const auto found = result.owner_of.find(reader);
        return found == result.owner_of.end() || found->second != owner->second;
      });
      const Var* const var = block.find_var(name);
      if (!is_read || var == nullptr || !var->persistable() || !seen.insert(name.str()).second)
        continue;
      result.sent[static_cast<size_t>(owner->second)].push_back(name.str());
    }
  }
}

}  // namespace

Ownership divide_updates(Program& program, std::vector<ParallelGrad>& grads, int devices) {
  assign(grads, devices);
  Ownership result;
  Block& block = program.root();
  if (!follow_gradients(block, grads, result)) {
    result.owner_of.clear();
    result.needs_all = true;
    divide_only_updates(block, grads, result);
  }
  find_sent(block, devices, result);
  if (result.needs_all) {
    for (ParallelGrad& grad : grads) grad.owner = -1;
  }
  return result;
}

}  // namespace millrace::transpiler
