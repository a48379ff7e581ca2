#include "ops/activation/unary_op.h"
#include "ops/grad_rules.h"
#include "ops/registry.h"

namespace millrace::ops {
namespace sign {
namespace {

// The gradient is zero. It is computed as a scale by 0, which keeps shape and LoD.
StatusOr<std::vector<GradOp>> grad(const GradContext& ctx) {
  std::optional<GradOp> op = grad_op_of_x(ctx, "scale");
  if (!op) return std::vector<GradOp>{};
  op->attr("scale", make_attr(0.0F));
  return one_grad_op(*std::move(op));
}

}  // namespace
}  // namespace sign

void add_activation_sign(OpRegistry& registry) {
  registry.add(unary_op("sign", "", GradReads::kNothing, "-1, 0 or 1").grad(sign::grad));
}

}  // namespace millrace::ops
