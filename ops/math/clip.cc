#include "ops/infer_helpers.h"
#include "ops/registry.h"

namespace millrace::ops {
namespace clip {
namespace {

Status infer(InferContext& ctx) {
  const bool fixed = !ctx.has_input("Min") && !ctx.has_input("Max");
  const float lower = ctx.attr<float>("min");
  const float upper = ctx.attr<float>("max");
  if (fixed && lower > upper)
    return ctx.error("attribute 'min' is {}, which is above 'max' {}", lower, upper);
  return infer_unary(ctx);
}

}  // namespace
}  // namespace clip

void add_math_clip(OpRegistry& registry) {
  registry.add(OpDef("clip")
                   .doc("each element clipped to [min, max]")
                   .input("X", "dense or sparse rows, any shape")
                   .input("Min", "one element; replaces min", Arity::kOptional)
                   .input("Max", "one element; replaces max", Arity::kOptional)
                   .output("Out", "shape, dtype, LoD and kind of X")
                   .required_attr<float>("min", "lower bound")
                   .required_attr<float>("max", "upper bound, not below min")
                   .infer(clip::infer)
                   .grad({.type = "clip_grad",
                          .inputs = {"Max", "Min", "Out@GRAD", "X"},
                          .outputs = {"X@GRAD"},
                          .shape_like = {{"X@GRAD", "Out@GRAD"}}})
                   .flops(elementwise_flops)
                   .inplace("X", "Out"));
}

}  // namespace millrace::ops
