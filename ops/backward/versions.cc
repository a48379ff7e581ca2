#include "ops/backward/versions.h"

#include <algorithm>

#include "framework/base/errors.h"
#include "framework/names.h"
#include "framework/op_attrs.h"

namespace millrace::ops::backward {
namespace {

constexpr int32_t kNotForward = 1 | 2 | 4 | 8 | 16;  // backward, optimize, rpc, dist, schedule

using Strings = std::vector<std::string>;

Block* body_of(const Op& op) {
  const int32_t index = sub_block_of(op);
  const bool known =
      index > op.block().index() && static_cast<size_t>(index) < op.program().block_count();
  return known ? &op.program().block(static_cast<size_t>(index)) : nullptr;
}

// Adds the inputs of an op whose output is in `names`. Returns whether a name was added.
bool add_sources(const Op& op, Names& names) {
  const size_t before = names.size();
  if (llvm::any_of(op.output_names(), [&](llvm::StringRef n) { return names.contains(n.str()); })) {
    for (const llvm::StringRef name : op.input_names()) names.insert(name.str());
  }
  if (op.type() == "recurrent") {
    const auto previous = get_attr_or<Strings>(op, "ex_states", {});
    const auto states = get_attr_or<Strings>(op, "states", {});
    for (size_t k = 0; k < std::min(previous.size(), states.size()); ++k)
      if (names.contains(previous[k])) names.insert(states[k]);
  }
  return names.size() != before;
}

// In a recurrent op, a sequence has the same name as its time step inside.
void rename_inside(Op& recurrent, Block& body, llvm::StringRef from, llvm::StringRef to) {
  for (Op& op : body.ops()) rename_deep(op, from, to, /*writes=*/true);
  body.rename(from, to);
  for (const char* const attr : {"states", "ex_states"}) {
    auto names = get_attr_or<Strings>(recurrent, attr, {});
    if (!llvm::is_contained(names, from)) continue;
    std::replace(names.begin(), names.end(), from.str(), to.str());
    recurrent.set_strings(attr, std::move(names));
  }
}

// Values of conditions, each with the op that wrote it last (null: none of the block), because a
// condition may be overwritten between two branches.
using Facts = std::map<std::pair<std::string, const Op*>, bool>;

// Adds what is known before an op if `condition` has the given value there.
void add_facts(const Op& at, llvm::StringRef condition, bool value, Facts& facts) {
  const Op* writer = nullptr;
  for (const Op* const op : at.block().writers_of(condition))
    if (op->comes_before(at)) writer = op;
  const bool is_new = facts.try_emplace({condition.str(), writer}, value).second;
  if (!is_new || writer == nullptr) return;
  const llvm::StringRef type = writer->type();
  if (type == "logical_not") add_facts(*writer, writer->first_input("X"), !value, facts);
  if ((type == "logical_and" && value) || (type == "logical_or" && !value)) {
    for (const char* const slot : {"X", "Y"})
      add_facts(*writer, writer->first_input(slot), value, facts);
  }
}

Facts facts_of(const Op& branch) {
  Facts facts;
  add_facts(branch, branch.first_input("Cond"), /*value=*/true, facts);
  return facts;
}

}  // namespace

bool exclude_each_other(llvm::ArrayRef<const Op*> branches) {
  for (size_t i = 0; i < branches.size(); ++i) {
    const Facts facts = facts_of(*branches[i]);
    for (const Op* const other : branches.take_front(i)) {
      const Facts others = facts_of(*other);
      const bool differ = llvm::any_of(facts, [&](const auto& fact) {
        const auto found = others.find(fact.first);
        return found != others.end() && found->second != fact.second;
      });
      if (!differ) return false;
    }
  }
  return true;
}

bool is_forward(const Op& op) {
  return (get_attr_or<int32_t>(op, "op_role", 0) & kNotForward) == 0;
}

Touched touched_by(const Op& op) {
  Touched touched;
  for (const llvm::StringRef name : op.input_names()) touched.reads.insert(name.str());
  for (const llvm::StringRef name : op.output_names()) touched.writes.insert(name.str());
  const Block* const body = body_of(op);
  if (body == nullptr) return touched;
  Names assigned;  // by ops of the body so far, so that later ops read no value from outside
  for (const Op& inside : body->ops()) {
    const Touched deeper = touched_by(inside);
    for (const std::string& name : deeper.reads)
      if (body->find_var(name) == nullptr && !assigned.contains(name)) touched.reads.insert(name);
    for (const std::string& name : deeper.writes)
      if (body->find_var(name) == nullptr) touched.writes.insert(name);
    // an op that writes to an array leaves its other elements
    if (body_of(inside) == nullptr && inside.type() != "write_to_array")
      assigned.insert(deeper.writes.begin(), deeper.writes.end());
  }
  return touched;
}

BlockKind block_kind(const Op& op) {
  if (body_of(op) == nullptr) return BlockKind::kNone;
  if (op.type() == "while") return BlockKind::kLoop;
  if (op.type() == "recurrent") return BlockKind::kRecurrent;
  const bool scalar = op.type() == "conditional_block" && op.input("Cond").size() == 1 &&
                      get_attr_or<bool>(op, "is_scalar_condition", false);
  return scalar ? BlockKind::kBranch : BlockKind::kOther;
}

const Block& steps_of(const Op& op) {
  return op.program().block(static_cast<size_t>(sub_block_of(op)));
}

const Op* owner_of(const Block& block) {
  if (block.parent() < 0 || block.parent() >= block.index()) return nullptr;
  for (const Op& op : block.program().block(static_cast<size_t>(block.parent())).ops()) {
    if (sub_block_of(op) == block.index() && block_kind(op) != BlockKind::kNone) return &op;
  }
  return nullptr;
}

Names names_leading_to(const Program& program, llvm::StringRef loss) {
  Names names{loss.str()};
  for (bool changed = true; changed;) {
    changed = false;
    for (const Block& block : program.blocks()) {
      if (block.forward_block().has_value() && block.index() > 0) continue;
      for (const Op& op : llvm::reverse(block.ops()))
        if (is_forward(op)) changed = add_sources(op, names) || changed;
    }
  }
  return names;
}

std::string declare_version(Block& block, llvm::StringRef like) {
  const Program& program = block.program();
  const auto is_taken = [&](const std::string& name) {
    return llvm::any_of(program.blocks(),
                        [&](const Block& b) { return b.find_var(name) != nullptr; });
  };
  int64_t number = 0;
  while (is_taken(names::version(like, number))) ++number;
  const Var* const var = block.find_var_recursive(like);
  VarSpec spec = var == nullptr ? VarSpec::shapeless(VarKind::kLodTensor) : var->spec();
  spec.need_check_feed.reset();
  return block.declare(names::version(like, number), std::move(spec)).name().str();
}

bool is_dense_float(const Var& var) {
  return var.kind() == VarKind::kLodTensor && var.spec().has_tensor() &&
         (var.dtype() == DType::kFloat32 || var.dtype() == DType::kFloat64 ||
          var.dtype() == DType::kFloat16 || var.dtype() == DType::kBfloat16);
}

void rename_deep(Op& op, llvm::StringRef from, llvm::StringRef to, bool writes) {
  Block* const body = body_of(op);
  const bool is_inner = op.type() == "recurrent" && body != nullptr &&
                        (llvm::is_contained(op.input("inputs"), from) ||
                         (writes && llvm::is_contained(op.output("outputs"), from)));
  op.replace_input(from, to);
  if (writes) op.replace_output(from, to);
  if (is_inner) return rename_inside(op, *body, from, to);
  if (body == nullptr || body->find_var(from) != nullptr) return;
  for (Op& inside : body->ops()) rename_deep(inside, from, to, writes);
}

void insert_assign(Block& block, Op* where, const std::string& from, const std::string& to) {
  block.insert_before(where, "assign")
      .set_input("X", from)
      .set_output("Out", to)
      .set_int("op_role", 0);
}

}  // namespace millrace::ops::backward
