#include "ops/backward/array_reads.h"

#include <fmt/format.h>

#include "framework/base/errors.h"
#include "framework/names.h"
#include "framework/op_attrs.h"
#include "ops/backward/versions.h"

namespace millrace::ops::backward {
namespace {

constexpr int32_t kBackwardFlag = 1;

bool gives_no_gradient(const Op& op) {
  return op.type() == "write_to_array" || op.type() == "lod_array_length" ||
         (get_attr_or<int32_t>(op, "op_role", 0) & kBackwardFlag) != 0;
}

// The reads of one array.
class Reads {
 public:
  explicit Reads(std::string array) : array_(std::move(array)) {}

  // Adds the reads of an op and of its sub-block. `in_branch`: the op is in a branch of the loop.
  void add(const Op& op, bool in_branch) {
    if (gives_no_gradient(op)) return;
    const BlockKind kind = block_kind(op);
    if (kind != BlockKind::kNone && kind != BlockKind::kOther) {
      for (const Op& inside : steps_of(op).ops())
        add(inside, in_branch || kind != BlockKind::kLoop);
      return;
    }
    if (!op.reads(array_)) return;
    in_branch_ = in_branch_ || in_branch;
    places_.insert(place_of(op));
  }

  [[nodiscard]] size_t count() const { return places_.size(); }
  [[nodiscard]] bool in_branch() const { return in_branch_; }

 private:
  // Reads with the same index in one iteration are of the same element.
  static std::string place_of(const Op& op) {
    const Block& block = op.block();
    if (op.type() != "read_from_array")
      return fmt::format("{}: {}", block.index(), block.index_of(op));
    const llvm::StringRef index = op.first_input("I");
    size_t writes = 0;
    for (const Op* const writer : block.writers_of(index)) writes += writer->comes_before(op);
    return fmt::format("{}: {} {}", block.index(), index.str(), writes);
  }

  std::string array_;
  Names places_;
  bool in_branch_ = false;
};

// Names of the indices with which ops of a block write an array.
void add_indices(const Block& block, llvm::StringRef array, Names& indices) {
  for (const Op& op : block.ops()) {
    if (op.type() == "write_to_array" && op.writes(array))
      indices.insert(op.first_input("I").str());
    if (block_kind(op) != BlockKind::kNone) add_indices(steps_of(op), array, indices);
  }
}

bool writes_behind(const Op& op, llvm::StringRef name) {
  for (const Op* behind = op.block().next(op); behind != nullptr; behind = op.block().next(*behind))
    if (behind->writes(name)) return true;
  return false;
}

// Counts the reads outside of a loop: those after it and, if it is inside another loop, all of that
// loop.
size_t reads_around(const Op& loop, const std::string& array) {
  Names indices;
  add_indices(steps_of(loop), array, indices);
  Reads around(array);
  const Op* at = &loop;  // op of the block that is, or contains, the loop
  for (const Block* block = &loop.block(); block != nullptr;) {
    for (const Op& op : block->ops()) {
      const bool is_around =
          touched_by(op).writes.contains(array) && block_kind(op) != BlockKind::kNone;
      const bool is_before = block->index() == 0 && at != nullptr && op.comes_before(*at);
      if (&op == &loop || is_around || is_before) continue;
      const bool is_last = op.type() == "read_from_array" && &loop.block() == block &&
                           loop.comes_before(op) && indices.contains(op.first_input("I").str()) &&
                           !writes_behind(loop, op.first_input("I"));
      if (!is_last) around.add(op, false);
    }
    if (block->parent() < 0 || block->parent() >= block->index() ||
        block->find_var(array) != nullptr)
      break;
    at = owner_of(*block);
    block = &loop.program().block(static_cast<size_t>(block->parent()));
  }
  return around.count();
}

}  // namespace

Names arrays_read_unlisted(const Op& op) {
  Names arrays;
  if (block_kind(op) == BlockKind::kNone || op.type().endswith("_grad")) return arrays;
  for (const std::string& name : touched_by(op).reads) {
    const Var* const var = op.block().find_var_recursive(name);
    if (var != nullptr && var->kind() == VarKind::kLodTensorArray && op.writes(name) &&
        !op.reads(name))
      arrays.insert(name);
  }
  return arrays;
}

Names arrays_read_apart(const Op& loop, std::vector<Status>* warnings) {
  Names arrays;
  if (block_kind(loop) != BlockKind::kLoop) return arrays;
  for (const llvm::StringRef name : loop.output("Out")) {
    const Var* const var = loop.block().find_var_recursive(name);
    if (var == nullptr || var->kind() != VarKind::kLodTensorArray) continue;
    const std::string array = name.str();
    Reads inside(array);
    for (const Op& op : steps_of(loop).ops()) inside.add(op, false);
    if (inside.count() == 0 || (inside.count() == 1 && reads_around(loop, array) == 0)) continue;
    if (!inside.in_branch()) {
      arrays.insert(array);
    } else if (warnings != nullptr) {
      warnings->push_back(
          InvalidProgram("array '{}' is read in a branch of the loop and by another op; if both "
                         "read one element, one of the gradients may be lost, as in the original",
                         array)
              .at(loop.location()));
    }
  }
  return arrays;
}

bool is_gradient_of_array(llvm::StringRef name, const std::string& array) {
  return name.consume_front(names::grad(array)) && (name.empty() || name.startswith("@RENAME@"));
}

const std::string* taken_from(const PendingOp& pending) {
  if (pending.op.type != "read_from_array") return nullptr;
  for (const auto& [slot, args] : pending.op.inputs)
    if (slot == "X" && !args.empty()) return &args.front();
  return nullptr;
}

void clear_taken_elements(std::vector<PendingOp>& ops, const Names& arrays) {
  if (arrays.empty()) return;
  const auto first = [](const auto& slots, llvm::StringRef slot) -> std::string {
    for (const auto& [name, args] : slots)
      if (name == slot && !args.empty()) return args.front();
    return {};
  };
  std::vector<PendingOp> out;
  for (PendingOp& pending : ops) {
    const std::string* const from = taken_from(pending);
    const bool takes = from != nullptr && llvm::any_of(arrays, [&](const std::string& array) {
                         return is_gradient_of_array(*from, array);
                       });
    const std::string array = takes ? *from : "";
    const std::string element = first(pending.op.outputs, "Out");
    const std::string index = first(pending.op.inputs, "I");
    out.push_back(std::move(pending));
    if (!takes || element.empty()) continue;
    const std::string zero = element + "@ZERO";
    GradOp fill("fill_any_like");
    fill.input("X", {element}).output("Out", {zero});
    fill.attr("value", make_attr(0.0F)).attr("dtype", make_attr(int32_t{-1}));
    GradOp write("write_to_array");
    write.input("X", {zero}).input("I", {index}).output("Out", {array});
    out.push_back({std::move(fill), nullptr});
    out.push_back({std::move(write), nullptr});
  }
  ops = std::move(out);
}

}  // namespace millrace::ops::backward
