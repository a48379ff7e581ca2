#include "ops/grad.h"
#include "ops/infer_helpers.h"
#include "ops/registry.h"
#include "ops/tensor/helpers.h"

namespace millrace::ops {
namespace reverse_ops {
namespace {

Status infer(InferContext& ctx) {
  const VarMeta& x = ctx.input("X");
  if (dims_known(x) && x.kind != VarKind::kLodTensorArray) {
    for (const int64_t axis : ctx.attr<std::vector<int64_t>>("axis"))
      MILLRACE_RETURN_IF_ERROR(checked_axis(ctx, "axis", axis, x.rank()).status());
  }
  return infer_unary(ctx);
}

Status infer_roll(InferContext& ctx) {
  const auto shifts = ctx.attr<std::vector<int64_t>>("shifts");
  const auto axes = ctx.attr<std::vector<int64_t>>("axis");
  if (!ctx.has_input("ShiftsTensor") && !axes.empty() && shifts.size() != axes.size()) {
    return ctx.error("attributes 'shifts' and 'axis' must have the same length, found {} and {}",
                     shifts.size(), axes.size());
  }
  return infer(ctx);
}

// Reversing twice restores the tensor, so the gradient op is the op itself.
StatusOr<std::vector<GradOp>> grad(const GradContext& ctx) {
  std::vector<std::string> wanted = ctx.input_grad("X");
  if (wanted.empty()) return std::vector<GradOp>{};
  GradOp op(ctx.forward().type());
  op.input("X", ctx.output_grad("Out")).output("Out", std::move(wanted));
  if (const AttrValue* axis = ctx.forward().find_attr("axis")) op.attr("axis", *axis);
  return std::vector<GradOp>{std::move(op)};
}

}  // namespace
}  // namespace reverse_ops

/// flip, reverse, roll
void add_tensor_reverse(OpRegistry& registry) {
  using namespace reverse_ops;
  registry.add(OpDef("flip")
                   .doc("X with the order reversed along some dims")
                   .input("X", "any shape")
                   .output("Out", "shape and dtype of X")
                   .required_attr<std::vector<int32_t>>("axis", "dims to reverse")
                   .infer(infer)
                   .grad(grad));
  registry.add(OpDef("reverse")
                   .doc("X with the order reversed along some dims; an array is reversed as a list")
                   .input("X", "any shape, or a tensor array", Arity::kOne, kTensor | kTensorArray)
                   .output("Out", "as X", Arity::kOne, kTensor | kTensorArray)
                   .required_attr<std::vector<int32_t>>("axis", "dims to reverse")
                   .infer(infer)
                   .grad(grad));
  registry.add(
      OpDef("roll")
          .doc("X shifted along some dims; elements shifted past the end reappear at the front")
          .input("X", "any shape")
          .input("ShiftsTensor", "one distance for each axis", Arity::kOptional)
          .output("Out", "shape and dtype of X")
          .attr("shifts", std::vector<int64_t>{}, "distance for each axis")
          .attr("axis", std::vector<int64_t>{}, "dims; empty: X as one row of elements")
          .infer(infer_roll)
          .grad(grad_of_x("roll_grad", {"X", "ShiftsTensor"})));
}

}  // namespace millrace::ops
