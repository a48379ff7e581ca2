#include "ops/backward/counters.h"

#include <algorithm>

#include "framework/names.h"
#include "framework/op_attrs.h"
#include "ops/backward/versions.h"

namespace millrace::ops::backward {
namespace {

constexpr int32_t kBackwardRole = 1;

// Adds the vars of the forward block that a gradient op writes and that are not gradients.
void add_counted(const Op& op, const Block& forward, Names& counted) {
  for (const std::string& name : touched_by(op).writes) {
    const Var* const var = forward.find_var(name);
    if (var != nullptr && !var->persistable() && !is_grad_name(name) && name != names::kEmpty)
      counted.insert(name);
  }
}

// True for integers and conditions: values that select what an op computes.
bool is_choice(const Var* var) {
  if (var == nullptr || var->persistable() || var->kind() != VarKind::kLodTensor ||
      !var->spec().has_tensor())
    return false;
  const DType dtype = var->dtype();
  return dtype == DType::kInt32 || dtype == DType::kInt64 || dtype == DType::kBool;
}

// True if an op of the gradient block of a pending op, or the op itself, satisfies the predicate
// for a var of the forward block.
template <typename Fn>
bool any_touches(const PendingOp& pending, const std::string& name, Fn fn) {
  if (pending.sub_block == nullptr || pending.sub_block->find_var(name) != nullptr) return false;
  return llvm::any_of(pending.sub_block->ops(), [&](const Op& op) { return fn(touched_by(op)); });
}

bool is_read_by(const PendingOp& pending, const std::string& name) {
  // Scope tells conditional_block_grad whether the branch was taken
  const bool is_branch = pending.op.type == "conditional_block_grad";
  const bool is_input = llvm::any_of(pending.op.inputs, [&](const auto& slot) {
    return !(is_branch && slot.first == "Cond") && llvm::is_contained(slot.second, name);
  });
  return is_input || any_touches(pending, name, [&](const Touched& touched) {
           return touched.reads.contains(name);
         });
}

// True if gradient ops change the var, or know it by its name: a recurrence reads time steps of it.
bool is_bound_to(const PendingOp& pending, const std::string& name) {
  bool found = any_touches(pending, name,
                           [&](const Touched& touched) { return touched.writes.contains(name); });
  pending.each_output([&](const std::string& output) { found |= output == name; });
  return found || (pending.op.type == "recurrent_grad" && pending.reads(name));
}

void read_copy(PendingOp& pending, const std::string& name, const std::string& copy) {
  for (auto& [slot, names] : pending.op.inputs)
    std::replace(names.begin(), names.end(), name, copy);
  if (pending.sub_block == nullptr || pending.sub_block->find_var(name) != nullptr) return;
  for (Op& op : pending.sub_block->ops()) rename_deep(op, name, copy, false);
}

// True if a forward op that reads the var satisfies the predicate.
template <typename Fn>
bool any_forward(const Program& program, llvm::StringRef name, Fn fn) {
  return llvm::any_of(program.blocks(), [&](const Block& block) {
    return llvm::any_of(block.readers_of(name),
                        [&](const Op* op) { return is_forward(*op) && fn(*op, name); });
  });
}

// False for copies and for ops that hand vars on to their block.
bool is_selecting(const Op& op) {
  return op.type() != "assign" && block_kind(op) == BlockKind::kNone;
}

bool is_loop_body(const Block& block) {
  const Op* const owner = owner_of(block);
  return owner != nullptr && block_kind(*owner) == BlockKind::kLoop;
}

bool has_earlier_value(const Op& op, const std::string& name) {
  const Block& block = op.block();
  if (block.first_writer(name) != &op) return true;
  return llvm::any_of(block.readers_of(name), [&](const Op* r) { return r->comes_before(op); });
}

}  // namespace

bool Overwrites::is_counted(const Op& op, const std::string& name) {
  const auto [found, is_new] = counted_.try_emplace(name, false);
  if (!is_new) return found->second;
  found->second = any_forward(op.program(), name, [](const Op& other, llvm::StringRef var) {
    return other.type() == "increment" && other.writes(var);
  });
  return found->second;
}

void Overwrites::note(Op& op, size_t position, bool counts_back) {
  if (!is_forward(op) || op.type() == "feed") return;
  for (const std::string& name : touched_by(op).writes) {
    if (is_choice(op.block().find_var_recursive(name)) && !(counts_back && is_counted(op, name)))
      noted_.push_back({&op, name, position});
  }
}

bool Overwrites::is_needed(const Overwrite& noted, const Names& reread,
                           const std::vector<PendingOp>& ops) {
  const Block& block = noted.op->block();
  const auto begin = ops.begin() + static_cast<ptrdiff_t>(noted.position);
  const auto reads = [&](const PendingOp& pending) { return is_read_by(pending, noted.name); };
  if (block.find_var(noted.name) != nullptr)
    return has_earlier_value(*noted.op, noted.name) && std::any_of(begin, ops.end(), reads);
  if (is_counted(*noted.op, noted.name)) {
    return any_forward(block.program(), noted.name, [&](const Op& op, llvm::StringRef) {
      const OpDef* const def = registry_.find(op.type());
      return def != nullptr && def->has_grad() && op.type() != "increment" && is_selecting(op);
    });
  }
  if (is_loop_body(block) && !reread.contains(noted.name)) return false;
  return std::any_of(begin, ops.end(), reads);
}

Names Overwrites::reread_in_loop(const std::vector<PendingOp>& ops) {
  std::map<std::string, size_t> first;  // gradient ops of what follows the first overwriting op
  for (const Overwrite& noted : noted_) {
    const Block& block = noted.op->block();
    if (is_loop_body(block) && block.find_var(noted.name) == nullptr &&
        !is_counted(*noted.op, noted.name))
      first[noted.name] = noted.position;
  }
  Names names;
  for (const auto& [name, count] : first) {
    if (llvm::any_of(llvm::ArrayRef(ops).take_front(count),
                     [&, &var = name](const PendingOp& op) { return is_read_by(op, var); }))
      names.insert(name);
  }
  return names;
}

void Overwrites::keep_values(std::vector<PendingOp>& ops) {
  const Names reread = reread_in_loop(ops);
  for (const Overwrite& noted : llvm::reverse(noted_)) {
    if (!is_needed(noted, reread, ops)) continue;
    Block& block = noted.op->block();
    const std::string copy = declare_version(block, noted.name);
    insert_assign(block, noted.op, noted.name, copy);
    const auto begin = ops.begin() + static_cast<ptrdiff_t>(noted.position);
    const bool is_restored = block.find_var(noted.name) == nullptr
                                 ? is_counted(*noted.op, noted.name)
                                 : std::any_of(begin, ops.end(), [&](const PendingOp& pending) {
                                     return is_bound_to(pending, noted.name);
                                   });
    if (!is_restored) {
      std::for_each(begin, ops.end(), [&](PendingOp& op) { read_copy(op, noted.name, copy); });
      continue;
    }
    GradOp restore("assign");
    restore.input("X", {copy}).output("Out", {noted.name});
    ops.insert(begin, {std::move(restore), nullptr});
  }
  for (const std::string& name : reread) {
    Block& block = noted_.front().op->block();
    const std::string copy = declare_version(block, name);
    insert_assign(block, nullptr, name, copy);
    for (PendingOp& op : ops) read_copy(op, name, copy);
  }
}

void restore_counters(Block& forward, Block& target) {
  Names counted;
  Op* first = nullptr;  // first gradient op, if gradient ops are in the block itself
  if (&forward == &target) {
    for (Op& op : forward.ops()) {
      if ((get_attr_or<int32_t>(op, "op_role", 0) & kBackwardRole) == 0) continue;
      if (first == nullptr) first = &op;
      add_counted(op, forward, counted);
    }
  } else {
    for (const Block& block : forward.program().blocks()) {
      if (&block == &target || block.forward_block() != forward.index()) continue;
      for (const Op& op : block.ops()) add_counted(op, forward, counted);
    }
  }
  for (const std::string& name : counted) {
    const std::string saved = declare_version(forward, name);
    insert_assign(forward, first, name, saved);
    target.append_op("assign")
        .set_input("X", saved)
        .set_output("Out", name)
        .set_int("op_role", kBackwardRole);
  }
}

}  // namespace millrace::ops::backward
