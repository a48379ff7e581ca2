#include "transpiler/roles.h"

#include "framework/op_attrs.h"

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

}  // namespace millrace::transpiler::role
