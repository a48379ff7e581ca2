#include "ops/grad_rules.h"
#include "ops/infer_helpers.h"
#include "ops/registry.h"

namespace millrace::ops {
namespace cast_ops {
namespace {

Status infer(InferContext& ctx) {
  MILLRACE_ASSIGN_OR_RETURN(const DType dtype, checked_dtype(ctx, "out_dtype"));
  VarMeta out = ctx.input("X");
  out.dtype = dtype;
  ctx.set_output("Out", std::move(out));
  return Ok();
}

// The gradient is a cast in the opposite direction.
StatusOr<std::vector<GradOp>> grad(const GradContext& ctx) {
  std::optional<GradOp> op = grad_op_of_x(ctx, "cast");
  if (!op) return std::vector<GradOp>{};
  if (const AttrValue* out = ctx.forward().find_attr("out_dtype")) op->attr("in_dtype", *out);
  if (const AttrValue* in = ctx.forward().find_attr("in_dtype")) op->attr("out_dtype", *in);
  return one_grad_op(*std::move(op));
}

}  // namespace
}  // namespace cast_ops

void add_math_cast(OpRegistry& registry) {
  using namespace cast_ops;
  registry.add(OpDef("cast")
                   .doc("X with another element type; floats are truncated towards zero")
                   .input("X", "any shape")
                   .output("Out", "shape and LoD of X")
                   .required_attr<int32_t>("out_dtype", "element type of Out")
                   .required_attr<int32_t>("in_dtype", "element type of X")
                   .infer(infer)
                   .grad(grad)
                   .flops(elementwise_flops));
}

}  // namespace millrace::ops
