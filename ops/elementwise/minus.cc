#include "ops/grad.h"
#include "ops/infer_helpers.h"
#include "ops/registry.h"

namespace millrace::ops {
namespace minus_ops {
namespace {

Status infer(InferContext& ctx) {
  MILLRACE_RETURN_IF_ERROR(check_same_dims(ctx, "X", "Y"));
  return infer_unary(ctx);
}

// One scale op for each operand whose gradient is wanted.
StatusOr<std::vector<GradOp>> grad(const GradContext& ctx) {
  std::vector<GradOp> ops;
  for (const auto& [slot, factor] : {std::pair{"X", 1.0F}, std::pair{"Y", -1.0F}}) {
    std::vector<std::string> wanted = ctx.input_grad(slot);
    if (wanted.empty()) continue;
    GradOp op("scale");
    op.input("X", ctx.output_grad("Out")).output("Out", std::move(wanted));
    op.attr("scale", make_attr(factor));
    ops.push_back(std::move(op));
  }
  return ops;
}

}  // namespace
}  // namespace minus_ops

void add_elementwise_minus(OpRegistry& registry) {
  using namespace minus_ops;
  registry.add(OpDef("minus")
                   .doc("Out = X - Y")
                   .input("X", "any shape")
                   .input("Y", "shape of X")
                   .output("Out", "shape, dtype and LoD of X")
                   .infer(infer)
                   .grad(grad)
                   .flops(elementwise_flops)
                   .inplace("X", "Out"));
}

}  // namespace millrace::ops
