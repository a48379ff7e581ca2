#include "ops/grad.h"
#include "ops/infer_helpers.h"
#include "ops/registry.h"

namespace millrace::ops {
namespace {

Status infer_cast(InferContext& ctx) {
  MILLRACE_ASSIGN_OR_RETURN(const DType dtype, checked_dtype(ctx, "out_dtype"));
  VarMeta out = ctx.input("X");
  out.dtype = dtype;
  ctx.set_output("Out", std::move(out));
  return Ok();
}

// The gradient is a cast in the opposite direction.
StatusOr<std::vector<GradOp>> grad_cast(const GradContext& ctx) {
  std::vector<std::string> wanted = ctx.input_grad("X");
  if (wanted.empty()) return std::vector<GradOp>{};
  GradOp op("cast");
  op.input("X", ctx.output_grad("Out")).output("Out", std::move(wanted));
  if (const AttrValue* out = ctx.forward().find_attr("out_dtype")) op.attr("in_dtype", *out);
  if (const AttrValue* in = ctx.forward().find_attr("in_dtype")) op.attr("out_dtype", *in);
  return std::vector<GradOp>{std::move(op)};
}

}  // namespace

void add_math_cast(OpRegistry& registry) {
  registry.add(OpDef("cast")
                   .doc("X with another element type; floats are truncated towards zero")
                   .input("X", "any shape")
                   .output("Out", "shape and LoD of X")
                   .required_attr<int32_t>("out_dtype", "element type of Out")
                   .required_attr<int32_t>("in_dtype", "element type of X")
                   .infer(infer_cast)
                   .grad(grad_cast)
                   .flops(elementwise_flops));
}

}  // namespace millrace::ops
