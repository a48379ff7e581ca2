#include "transpiler/upgrade/forward_op.h"

#include "framework/base/errors.h"
#include "framework/names.h"

namespace millrace::transpiler {
namespace {

// Gradients of a var that has several get a suffix after "@GRAD"; an absent one is "@EMPTY@".
bool is_gradient_of(llvm::StringRef gradient, llvm::StringRef var) {
  return gradient == names::kEmpty || gradient.startswith(names::grad(var));
}

// True if every slot that both ops have names the same vars in the gradient op and in the op.
bool belongs_to(const Op& gradient, const Op& op) {
  for (const Slot& slot : gradient.inputs()) {
    llvm::StringRef name = gradient.name_of(slot.name);
    const bool of_output = name.consume_back("@GRAD");
    const Slot* known = of_output ? op.find_output(name) : op.find_input(name);
    if (known == nullptr && !of_output) known = op.find_output(name);
    if (known == nullptr || known->args.size() != slot.args.size()) continue;
    for (size_t i = 0; i < slot.args.size(); ++i) {
      const llvm::StringRef have = gradient.name_of(slot.args[i].name);
      const llvm::StringRef want = op.name_of(known->args[i].name);
      if (of_output ? !is_gradient_of(have, want) : have != want) return false;
    }
  }
  return true;
}

// Null if the program has no such block.
Block* block_at(const Block& any, int32_t index) {
  const bool exists = index >= 0 && static_cast<size_t>(index) < any.program().block_count();
  return exists ? &any.program().block(index) : nullptr;
}

}  // namespace

StatusOr<Op*> forward_op(Op& gradient, llvm::StringRef type) {
  Op* found = nullptr;
  const auto look_at = [&](Op& op) -> Status {
    if (op.type() != type || !belongs_to(gradient, op)) return Ok();
    if (found != nullptr) {
      return Unimplemented(
                 "{} may be the gradient of two ops {} that write the same vars: {} and {}",
                 gradient.type().str(), type.str(), found->location().to_string(),
                 op.location().to_string())
          .at(gradient.location());
    }
    found = &op;
    return Ok();
  };
  Block& own = gradient.block();
  for (Op& op : own.ops()) {
    if (&op == &gradient) break;
    MILLRACE_RETURN_IF_ERROR(look_at(op));
  }
  for (Block* block = &own; block != nullptr && found == nullptr;
       block = block_at(own, block->parent())) {
    Block* const forward = block_at(own, block->forward_block().value_or(-1));
    if (forward == nullptr) continue;
    for (Op& op : forward->ops()) MILLRACE_RETURN_IF_ERROR(look_at(op));
  }
  return found;
}

}  // namespace millrace::transpiler
