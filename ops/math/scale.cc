#include "ops/grad.h"
#include "ops/infer_helpers.h"
#include "ops/registry.h"

namespace millrace::ops {
namespace scale_ops {
namespace {

// The gradient of a scale is a scale.
StatusOr<std::vector<GradOp>> grad(const GradContext& ctx) {
  std::vector<std::string> wanted = ctx.input_grad("X");
  if (wanted.empty()) return std::vector<GradOp>{};
  GradOp op("scale");
  if (auto factor = ctx.input("ScaleTensor"); !factor.empty())
    op.input("ScaleTensor", std::move(factor));
  op.input("X", ctx.output_grad("Out")).output("Out", std::move(wanted));
  if (const AttrValue* factor = ctx.forward().find_attr("scale")) op.attr("scale", *factor);
  op.attr("bias", make_attr(0.0F)).attr("bias_after_scale", make_attr(true));
  return std::vector<GradOp>{std::move(op)};
}

}  // namespace
}  // namespace scale_ops

void add_math_scale(OpRegistry& registry) {
  registry.add(OpDef("scale")
                   .doc("Out = scale * X + bias; the bias is added before scaling if "
                        "bias_after_scale is false")
                   .input("X", "any shape")
                   .input("ScaleTensor", "one element; replaces the attribute", Arity::kOptional)
                   .output("Out", "shape, dtype and LoD of X")
                   .attr("scale", 1.0F, "factor")
                   .attr("bias", 0.0F, "summand")
                   .attr("bias_after_scale", true)
                   .infer(infer_unary)
                   .grad(scale_ops::grad)
                   .flops(elementwise_flops)
                   .inplace("X", "Out"));
}

}  // namespace millrace::ops
