#include "ops/activation/unary_op.h"
#include "ops/grad.h"
#include "ops/registry.h"

namespace millrace::ops {
namespace {

// The gradient is zero. It is computed as a scale by 0, which keeps shape and LoD.
StatusOr<std::vector<GradOp>> grad_sign(const GradContext& ctx) {
  std::vector<std::string> wanted = ctx.input_grad("X");
  if (wanted.empty()) return std::vector<GradOp>{};
  GradOp op("scale");
  op.input("X", ctx.output_grad("Out")).output("Out", std::move(wanted));
  op.attr("scale", make_attr(0.0F));
  return std::vector<GradOp>{std::move(op)};
}

}  // namespace

void add_activation_sign(OpRegistry& registry) {
  registry.add(unary_op("sign", "", GradReads::kNothing, "-1, 0 or 1").grad(grad_sign));
}

}  // namespace millrace::ops
