#include "executor/update_order.h"

#include <algorithm>

#include <llvm/ADT/DenseMap.h>
#include <llvm/ADT/DenseSet.h>
#include <llvm/ADT/STLExtras.h>
#include <llvm/ADT/SmallVector.h>

#include "framework/names.h"
#include "transpiler/program_edit.h"
#include "transpiler/roles.h"

namespace millrace::executor {
namespace {

namespace role = transpiler::role;
using Group = llvm::SmallVector<const Op*, 4>;

class UpdateOrder {
 public:
  explicit UpdateOrder(const Program& program)
      : block_(program.root()), outside_(transpiler::names_outside_root(program)) {
    for (const Op& op : block_.ops()) {
      place_[&op] = static_cast<int64_t>(ops_.size());
      ops_.push_back(&op);
    }
    runs_after_.resize(ops_.size());
    for (size_t i = 0; i < ops_.size(); ++i) runs_after_[i] = static_cast<int64_t>(i);
  }

  std::vector<const Op*> make() {
    std::vector<Group> moved(ops_.size());
    int64_t last_barrier = -1;
    for (size_t i = 0; i < ops_.size(); ++i) {
      const Op& op = *ops_[i];
      // such an op has an effect other than its outputs: a check, a message, a barrier
      if (op.outputs().empty()) last_barrier = static_cast<int64_t>(i);
      if (!role::is_optimizer(op) || op.type() == "dpsgd" || is_seen_outside(op)) continue;
      Group group = with_own_producers(op);
      int64_t after = std::max(last_barrier, last_conflict(group));
      if (after >= place_[group.front()]) {
        group = {&op};
        after = std::max(last_barrier, last_conflict(group));
      }
      if (after < 0) continue;
      for (const Op* const member : group) runs_after_[static_cast<size_t>(place_[member])] = after;
      llvm::append_range(moved[static_cast<size_t>(after)], group);
    }
    std::vector<const Op*> order;
    order.reserve(ops_.size());
    for (size_t i = 0; i < ops_.size(); ++i) {
      if (runs_after_[i] == static_cast<int64_t>(i)) order.push_back(ops_[i]);
      order.insert(order.end(), moved[i].begin(), moved[i].end());
    }
    return order;
  }

 private:
  bool is_seen_outside(const Op& op) const {
    const auto seen = [&](llvm::ArrayRef<Slot> slots) {
      return llvm::any_of(slots, [&](const Slot& slot) {
        return llvm::any_of(slot.args, [&](const Arg& arg) { return outside_.contains(arg.name); });
      });
    };
    return seen(op.inputs()) || seen(op.outputs());
  }

  // The op of the optimizer that computes an input of `reader` only for this reader; null if none.
  const Op* own_producer(const Op& reader, llvm::StringRef name) const {
    const Op* producer = nullptr;
    for (const Op* const writer : block_.writers_of(name)) {
      if (writer->comes_before(reader)) producer = writer;
    }
    if (producer == nullptr || !role::is_optimize_op(*producer) || is_seen_outside(*producer) ||
        runs_after_[static_cast<size_t>(place_.lookup(producer))] != place_.lookup(producer))
      return nullptr;
    for (const llvm::StringRef made : producer->output_names()) {
      const Var* const var = block_.find_var(made);
      if (var == nullptr || var->persistable()) return nullptr;
      for (const Op* const user : block_.readers_of(made)) {
        if (user != &reader && producer->comes_before(*user)) return nullptr;
      }
    }
    return producer;
  }

  // The update and the ops that only it needs, in block order.
  Group with_own_producers(const Op& update) const {
    Group group{&update};
    for (size_t i = 0; i < group.size(); ++i) {
      for (const llvm::StringRef name : group[i]->input_names()) {
        const Op* const producer = name == names::kEmpty ? nullptr : own_producer(*group[i], name);
        if (producer != nullptr && !llvm::is_contained(group, producer)) group.push_back(producer);
      }
    }
    llvm::sort(group, [](const Op* a, const Op* b) { return a->comes_before(*b); });
    return group;
  }

  // Position of the last op that the group must not move past; -1 if there is none.
  int64_t last_conflict(const Group& group) const {
    int64_t last = -1;
    for (const Op* const op : group) {
      const auto visit = [&](llvm::ArrayRef<const Op*> others) {
        for (const Op* const other : others) {
          if (!other->comes_before(*op) || llvm::is_contained(group, other)) continue;
          last = std::max(last, runs_after_[static_cast<size_t>(place_.lookup(other))]);
        }
      };
      for (const llvm::StringRef name : op->input_names())
        if (name != names::kEmpty) visit(block_.writers_of(name));
      for (const llvm::StringRef name : op->output_names()) {
        if (name == names::kEmpty) continue;
        visit(block_.writers_of(name));
        visit(block_.readers_of(name));
      }
    }
    return last;
  }

  const Block& block_;
  llvm::DenseSet<NameId> outside_;
  std::vector<const Op*> ops_;
  llvm::DenseMap<const Op*, int64_t> place_;
  /// Index of the op after which a moved op runs; the op's own index if it has not moved.
  std::vector<int64_t> runs_after_;
};

}  // namespace

std::vector<const Op*> order_with_early_updates(const Program& program) {
  return UpdateOrder(program).make();
}

}  // namespace millrace::executor
