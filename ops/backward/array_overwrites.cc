#include "ops/backward/array_overwrites.h"

#include <cstdlib>
#include <optional>
#include <set>

#include "framework/base/errors.h"
#include "framework/names.h"
#include "framework/op_attrs.h"
#include "ops/backward/array_reads.h"
#include "ops/backward/versions.h"

namespace millrace::ops::backward {
namespace {

constexpr int32_t kBackwardOp = 1;

// An array index: base plus offset. base is a var name (the value of that var in the beginning), or
// empty for 0.
struct Index {
  std::string base;
  double offset = 0;
};

bool is_write(const Op& op) {
  return op.type() == "write_to_array" &&
         (get_attr_or<int32_t>(op, "op_role", 0) & kBackwardOp) == 0;
}

bool writes(const Op& op, const std::string& name) {
  if (op.writes(name)) return true;
  return block_kind(op) != BlockKind::kNone && touched_by(op).writes.contains(name);
}

bool is_increment(const Op& op) {
  return op.type() == "increment" && op.first_input("X") == op.first_output("Out");
}

double step_of(const Op& increment) {
  return get_attr_or(increment, "step", 1.0F);
}

std::optional<double> constant_of(const Op& op) {
  if (op.type() != "fill_constant" || !op.input_names().empty()) return std::nullopt;
  const auto text = get_attr_or<std::string>(op, "str_value", "");
  if (text.empty()) return get_attr_or(op, "value", 0.0F);
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  return *end == '\0' ? std::optional(value) : std::nullopt;
}

// The value of a var when an op of a block begins.
std::optional<Index> index_at(const Block& block, const Op& at, const std::string& name) {
  const Op* last = nullptr;
  for (const Op& op : block.ops()) {
    if (&op == &at) break;
    if (writes(op, name)) last = &op;
  }
  if (last == nullptr) {
    if (block.index() == 0) return Index{name};
    const Op* const owner = owner_of(block);
    if (owner == nullptr || block.find_var(name) != nullptr ||
        block_kind(*owner) != BlockKind::kBranch)
      return std::nullopt;
    return index_at(owner->block(), *owner, name);
  }
  if (const auto value = constant_of(*last)) return Index{"", *value};
  if (last->type() == "assign") return index_at(block, *last, last->first_input("X").str());
  if (!is_increment(*last)) return std::nullopt;
  auto before = index_at(block, *last, name);
  if (before) before->offset += step_of(*last);
  return before;
}

// True if no op before `at` has written the element at `index`, or, with `from_here`, at an index
// from there on.
bool is_apart_from_earlier(const Op& at, const std::string& array, const Index& index,
                           bool from_here) {
  const Op* end = &at;
  for (const Block* block = &at.block(); block != nullptr;) {
    for (const Op& op : block->ops()) {
      if (&op == end) break;
      if (!writes(op, array)) continue;
      if (!is_write(op)) return false;
      const auto other = index_at(*block, op, op.first_input("I").str());
      if (!other || other->base != index.base) return false;
      if (from_here ? other->offset >= index.offset : other->offset == index.offset) return false;
    }
    if (block->index() == 0 || block->find_var(array) != nullptr) return true;
    end = owner_of(*block);
    if (end == nullptr) return false;
    block = &end->block();
  }
  return true;
}

size_t count_writes(const Block& block, const std::string& array) {
  size_t count = 0;
  for (const Op& op : block.ops()) {
    if (block_kind(op) != BlockKind::kNone)
      count += count_writes(steps_of(op), array);
    else
      count += op.writes(array);
  }
  return count;
}

bool only_increments(const Block& block, const std::string& name) {
  return llvm::all_of(block.ops(), [&](const Op& op) {
    if (block_kind(op) != BlockKind::kNone) return only_increments(steps_of(op), name);
    return !op.writes(name) || (is_increment(op) && step_of(op) > 0);
  });
}

// The loops around an op that do not declare the array, so that it keeps its elements between
// iterations.
struct LoopsAround {
  const Op* outermost = nullptr;
  const Block* nearest = nullptr;  // body of the innermost loop
  const Op* in_nearest = nullptr;  // op of that body that is, or contains, the op
  bool known = true;               // all enclosing blocks are loops and branches
};

LoopsAround loops_around(const Op& op, const std::string& array) {
  LoopsAround found;
  const Op* inside = &op;
  for (const Block* block = &op.block();
       block->index() != 0 && block->find_var(array) == nullptr;) {
    const Op* const owner = owner_of(*block);
    const BlockKind kind = owner == nullptr ? BlockKind::kOther : block_kind(*owner);
    if (kind == BlockKind::kLoop) {
      found.outermost = owner;
      if (found.nearest == nullptr) {
        found.nearest = block;
        found.in_nearest = inside;
      }
    } else if (kind != BlockKind::kBranch) {
      found.known = false;
      return found;
    }
    inside = owner;
    block = &owner->block();
  }
  return found;
}

bool may_overwrite(const Op& write) {
  const std::string array = write.first_output("Out").str();
  const std::string name = write.first_input("I").str();
  const LoopsAround loops = loops_around(write, array);
  if (!loops.known) return true;
  if (loops.outermost == nullptr) {
    const auto index = index_at(write.block(), write, name);
    // an unknown index is unique if no other op writes the array
    return !is_apart_from_earlier(write, array, index.value_or(Index{"?"}), /*from_here=*/false);
  }
  const Op& loop = *loops.outermost;
  const Block& steps = steps_of(loop);
  if (count_writes(steps, array) != 1 || !only_increments(steps, name)) return true;
  const auto counts = [&](const Op& op) { return is_increment(op) && op.writes(name); };
  if (!llvm::any_of(loops.nearest->ops(), counts)) return true;
  auto first = index_at(loop.block(), loop, name);
  if (first) {
    // add the increments of an iteration before the write
    for (const Op& op : loops.nearest->ops()) {
      if (&op == loops.in_nearest) break;
      if (counts(op)) first->offset += step_of(op);
    }
  }
  return !is_apart_from_earlier(loop, array, first.value_or(Index{"?"}), /*from_here=*/true);
}

}  // namespace

Names arrays_overwritten(const Block& block) {
  Names arrays;
  for (const Op& op : block.ops()) {
    if (is_write(op) && may_overwrite(op)) arrays.insert(op.first_output("Out").str());
  }
  return arrays;
}

Status check_taken(const std::vector<PendingOp>& ops, const Block& forward) {
  for (const std::string& array : arrays_overwritten(forward)) {
    bool has_gradient = false;
    std::multiset<std::string> taken;  // forward vars whose write has a gradient op
    for (const PendingOp& pending : ops) {
      const auto note = [&](const std::string& name) {
        has_gradient = has_gradient || is_gradient_of_array(name, array);
      };
      pending.each_input(note);
      pending.each_output(note);
      const std::string* const from = taken_from(pending);
      if (from == nullptr || !is_gradient_of_array(*from, array)) continue;
      for (const auto& [slot, args] : pending.op.inputs)
        if (slot == "X_W" && !args.empty()) taken.insert(args.front());
    }
    if (!has_gradient) continue;
    const Op* const owner = owner_of(forward);
    for (const Op& op : forward.ops()) {
      if (!is_write(op) || op.first_output("Out") != array) continue;
      if (owner != nullptr && block_kind(*owner) != BlockKind::kLoop)
        return Unimplemented(
                   "gradients of array '{}', whose elements may be overwritten in a branch", array)
            .at(op.location());
      const auto found = taken.find(op.first_input("X").str());
      if (found == taken.end())
        return Unimplemented(
                   "'{}', which has no gradient, is written to the array '{}', whose elements may "
                   "be overwritten; the value that it overwrites would get a wrong gradient",
                   op.first_input("X").str(), array)
            .at(op.location());
      taken.erase(found);
    }
  }
  return Ok();
}

void hand_out_arrays(GradOp& grad, const Op& loop) {
  Names arrays = arrays_overwritten(steps_of(loop));
  arrays.merge(arrays_read_unlisted(loop));
  for (const std::string& array : arrays) {
    if (!llvm::is_contained(loop.output("Out"), array) ||
        llvm::is_contained(loop.input("X"), array))
      continue;
    for (auto& [slot, args] : grad.inputs)
      if (slot == "X") args.push_back(array);
    for (auto& [slot, args] : grad.outputs)
      if (slot == "X@GRAD") args.push_back(names::grad(array));
  }
}

}  // namespace millrace::ops::backward
