#include "transpiler/parallel/owners.h"

#include <algorithm>
#include <set>

#include <llvm/ADT/STLExtras.h>
#include <llvm/ADT/StringMap.h>

#include "transpiler/parallel/exchanges.h"
#include "transpiler/roles.h"

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

// Owners of everything an optimizer op depends on: its own gradient, and values computed from
// gradients.
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

// False if an op depends on several owners, or runs on every device and reads a complete gradient
// (a program that scales gradients by ops without a role): only the owner has its sum.
bool follow_gradients(Block& block, const std::vector<ParallelGrad>& grads, Ownership& result) {
  llvm::StringMap<int> owner_of_var;
  llvm::StringMap<const Op*> writers;
  for (const ParallelGrad& grad : grads) {
    owner_of_var[grad.grad] = grad.owner;
    writers[grad.grad] = grad.writer;
  }
  for (Op& op : block.ops()) {
    if (!role::is_optimize_op(op)) {
      const bool reads_sum = llvm::any_of(op.input_names(), [&](llvm::StringRef name) {
        const auto found = writers.find(name);
        return found != writers.end() && found->second->comes_before(op);
      });
      if (reads_sum) return false;
      continue;
    }
    const std::set<int> owners = owners_of(op, owner_of_var);
    if (owners.empty()) continue;
    if (owners.size() > 1) return false;
    result.owner_of[&op] = *owners.begin();
    for (const llvm::StringRef name : op.output_names()) owner_of_var[name] = *owners.begin();
  }
  return true;
}

// Every device has every sum; the op that writes a parameter runs on the owner of its gradient.
void divide_only_updates(Block& block, const std::vector<ParallelGrad>& grads, Ownership& result) {
  llvm::StringMap<int> owner_of_param;
  for (const ParallelGrad& grad : grads) owner_of_param[grad.param] = grad.owner;
  for (Op& op : block.ops()) {
    if (!role::is_optimize_op(op) || !role::is_optimizer(op)) continue;
    const auto found = owner_of_param.find(op.first_input("Param"));
    if (found != owner_of_param.end()) result.owner_of[&op] = found->second;
  }
}

// Determines which vars are sent to the other devices, and when. A program may read an updated var
// before the step ends: for example with a second loss, whose gradients come after the update for
// the first.
class SentFinder {
 public:
  SentFinder(Block& block, Ownership& result) : block_(block), result_(result) {}

  void run() {
    for (Op& op : block_.ops()) {
      const auto found = result_.owner_of.find(&op);
      const int owner = found == result_.owner_of.end() ? kAll : found->second;
      send_to(op, owner);
      if (owner != kAll) note_writes(op, owner);
    }
    for (const auto& [name, owner] : pending_)
      if (is_read_by_others(name, owner)) result_.sent.push_back({name, owner, nullptr});
  }

 private:
  static constexpr int kAll = -1;
  using Pending = std::vector<std::pair<std::string, int>>;  // name and owner, in order of writing

  void send_to(Op& op, int reader) {
    const bool reads_all = has_block(op);
    for (auto it = pending_.begin(); it != pending_.end();) {
      if (it->second == reader || !(reads_all || op.reads(it->first))) {
        ++it;
        continue;
      }
      result_.sent.push_back({it->first, it->second, &op});
      it = pending_.erase(it);
    }
  }

  void note_writes(Op& op, int owner) {
    for (const llvm::StringRef name : op.output_names()) {
      const Var* const var = block_.find_var(name);
      const std::pair<std::string, int> entry(name.str(), owner);
      if (var != nullptr && var->persistable() && !llvm::is_contained(pending_, entry))
        pending_.push_back(entry);
    }
  }

  bool is_read_by_others(const std::string& name, int owner) {
    return llvm::any_of(block_.readers_of(name), [&](Op* reader) {
      const auto found = result_.owner_of.find(reader);
      return found == result_.owner_of.end() || found->second != owner;
    });
  }

  Block& block_;
  Ownership& result_;
  Pending pending_;
};

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
  SentFinder(block, result).run();
  if (result.needs_all) {
    for (ParallelGrad& grad : grads) grad.owner = -1;
  }
  return result;
}

bool is_server_op(const Op& op) {
  constexpr llvm::StringLiteral kAlways[] = {"send", "recv", "send_barrier", "fetch_barrier",
                                             "send_and_recv"};
  constexpr llvm::StringLiteral kSlicing[] = {"split_byref", "split_selected_rows", "concat"};
  if (llvm::is_contained(kAlways, op.type())) return true;
  const int32_t bits = role::of(op);
  const bool is_about_servers =
      bits != role::kUnspecified && (bits & (role::kRpc | role::kDist)) != 0;
  return is_about_servers && llvm::is_contained(kSlicing, op.type());
}

bool give_server_ops(Program& program, Ownership& result) {
  bool found = false;
  for (Op& op : program.root().ops()) {
    if (!is_server_op(op)) continue;
    found = true;
    result.owner_of[&op] = 0;
  }
  if (!found) return false;
  SentFinder(program.root(), result).run();
  return true;
}

}  // namespace millrace::transpiler
