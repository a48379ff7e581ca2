#include "ops/absent_gradients.h"

#include <algorithm>

#include <llvm/ADT/STLExtras.h>

#include "framework/base/errors.h"
#include "framework/names.h"
#include "framework/op_attrs.h"

namespace millrace::ops {
namespace {

const Block* block_by_index(const Program& program, int64_t index) {
  if (index < 0 || static_cast<size_t>(index) >= program.block_count()) return nullptr;
  return &program.block(static_cast<size_t>(index));
}

bool is_stopped(const Block& grads, llvm::StringRef state) {
  const Block* const forward = block_by_index(grads.program(), grads.forward_block().value_or(-1));
  const Var* const var = forward == nullptr ? nullptr : forward->find_var(state);
  return var != nullptr && var->stop_gradient();
}

// True if the op is the gradient of taking the last time step of a sequence.
bool is_of_last_step(const Op& op) {
  if (op.type() != "slice_grad") return false;
  using Ints = std::vector<int32_t>;
  const auto axes = get_attr_or<Ints>(op, "axes", {});
  const auto starts = get_attr_or<Ints>(op, "starts", {});
  if (axes != Ints{0} || starts.size() != 1) return false;
  const Var* const sequence = op.block().find_var_recursive(op.first_input("Input"));
  const int64_t steps = sequence == nullptr || sequence->dims().empty() ? -1 : sequence->dims()[0];
  return starts[0] == -1 || (steps > 0 && starts[0] == steps - 1);
}

// True if the gradient of a sequence covers other time steps than the last one.
bool has_earlier_steps(const Op& op, llvm::StringRef grad) {
  if (grad.empty() || grad == names::kEmpty) return false;
  return !llvm::all_of(op.block().writers_of(grad),
                       [](const Op* writer) { return is_of_last_step(*writer); });
}

// recurrent_grad replaces the gradient of a state by that of the next time step, which loses any
// other contribution.
bool is_replaced(const Op& op, const std::string& state) {
  const auto outputs = op.input("outputs");
  const auto grads = op.input("outputs@GRAD");
  for (size_t k = 0; k < std::min(outputs.size(), grads.size()); ++k)
    if (outputs[k] == state && has_earlier_steps(op, grads[k])) return true;
  return false;
}

void check_recurrence(const Op& op, std::vector<Status>& lost) {
  const AttrValue* const attr = op.find_attr("sub_block");
  if (attr == nullptr || attr->kind() != AttrKind::kBlock) return;
  const Block* const grads = block_by_index(op.program(), attr->integer());
  if (grads == nullptr) return;
  using Strings = std::vector<std::string>;
  const auto before = get_attr_or<Strings>(op, "ex_states", {});
  const auto after = get_attr_or<Strings>(op, "states", {});
  for (size_t k = 0; k < std::min(before.size(), after.size()); ++k) {
    const std::string incoming = names::grad(after[k]);
    if (grads->writers_of(names::grad(before[k])).empty() || is_stopped(*grads, after[k])) continue;
    const bool overwritten = !grads->writers_of(incoming).empty();
    Location where = op.location();
    where.var = after[k];
    if (!overwritten && is_replaced(op, after[k])) {
      lost.push_back(
          InvalidProgram(
              "the gradient of state '{}' is that of the next time step alone, as in the original; "
              "the gradient of its earlier time steps, which are used outside of the recurrence, "
              "is lost (use one assign for the state and another one for the output to keep it)",
              after[k])
              .at(std::move(where)));
      continue;
    }
    if (!overwritten && !grads->readers_of(incoming).empty()) continue;
    lost.push_back(
        InvalidProgram("the gradient of state '{}' is lost between time steps, as in the original: "
                       "{}; the gradients of parameters lack the part that flows through time",
                       after[k],
                       overwritten
                           ? "another op of the time step reads the state (use an assign to pass "
                             "the state on)"
                           : "no op after the recurrence reads this output (use it, or remove it "
                             "from the outputs)")
            .at(std::move(where)));
  }
}

}  // namespace

bool is_absent_gradient(const Op& op, llvm::StringRef slot, llvm::StringRef name) {
  if (!op.type().endswith("_grad") || !slot.endswith("@GRAD") || name == names::kEmpty)
    return false;
  const Program& program = op.program();
  for (const Block* block = &op.block(); block != nullptr;
       block = block->parent() < block->index() ? block_by_index(program, block->parent())
                                                : nullptr) {
    if (block->find_var(name) != nullptr || !block->writers_of(name).empty()) return false;
    const int32_t forward = block->forward_block().value_or(0);
    const Block* const made_from = forward > 0 ? block_by_index(program, forward) : nullptr;
    if (made_from != nullptr && made_from->find_var(name) != nullptr) return false;
  }
  return true;
}

std::vector<Status> lost_state_gradients(const Program& program) {
  std::vector<Status> lost;
  for (const Block& block : program.blocks()) {
    for (const Op& op : block.ops()) {
      if (op.type() == "recurrent_grad") check_recurrence(op, lost);
    }
  }
  return lost;
}

}  // namespace millrace::ops
