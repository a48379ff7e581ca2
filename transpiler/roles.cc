#include "transpiler/roles.h"

#include "framework/base/errors.h"
#include "framework/op_attrs.h"
#include "framework/program.h"

namespace millrace::transpiler::role {

int32_t of(const Op& op) {
  return get_attr_or<int32_t>(op, "op_role", kForward);
}

bool is_lr_op(const Op& op) {
  const int32_t role = of(op);
  return role == kLrSched || role == (kLrSched | kOptimize);
}

std::vector<const Op*> lr_ops(const Block& block) {
  std::vector<const Op*> ops;
  for (const Op& op : block.ops()) {
    if (is_lr_op(op)) ops.push_back(&op);
  }
  return ops;
}

bool is_optimize_op(const Op& op) {
  return of(op) == kOptimize;
}

bool is_optimizer(const Op& op) {
  return op.find_input("Param") != nullptr && op.find_input("LearningRate") != nullptr;
}

llvm::ArrayRef<std::string> vars(const Op& op) {
  const AttrValue* const value = op.find_attr("op_role_var");
  if (value == nullptr || value->kind() != AttrKind::kStrings) return {};
  return value->strings();
}

Status check_updates_in_block_0(const Program& program) {
  for (const Block& block : program.blocks()) {
    if (block.index() == 0) continue;
    for (const Op& op : block.ops()) {
      if (!is_optimizer(op) || op.find_input("Grad") == nullptr) continue;
      return Unimplemented(
                 "the update of param '{}' is in block {}, as in programs of gradient merge; "
                 "gradients are exchanged in every step, for updates of block 0 only",
                 op.first_input("Param").str(), block.index())
          .at(op.location());
    }
  }
  return Ok();
}

}  // namespace millrace::transpiler::role
