#include "ops/grad.h"
#include "ops/infer_helpers.h"
#include "ops/lod_offsets.h"
#include "ops/registry.h"
#include "ops/tensor/helpers.h"

namespace millrace::ops {
namespace stack {
namespace {

Status infer(InferContext& ctx) {
  const VarMeta first = ctx.input("X");
  Dims dims = first.dims;
  for (size_t i = 0; i < ctx.input_count("X"); ++i) {
    const VarMeta& x = ctx.input("X", i);
    if (!x.has_shape || !first.has_shape) {
      ctx.set_output("Y", unknown_like(first));
      return Ok();
    }
    bool agree = x.rank() == dims.size();
    for (size_t d = 0; agree && d < dims.size(); ++d) {
      agree = dims_agree(dims[d], x.dims[d]);
      if (dims[d] < 0) dims[d] = x.dims[d];
    }
    if (!agree) {
      return ctx.error("X[{}] must have the shape of the others {}, found {}", i, dims_text(dims),
                       dims_text(x.dims));
    }
  }
  MILLRACE_ASSIGN_OR_RETURN(const int64_t axis,
                            checked_axis(ctx, "axis", ctx.attr<int64_t>("axis"), dims.size() + 1));
  dims.insert(dims.begin() + axis, static_cast<int64_t>(ctx.input_count("X")));
  ctx.set_output("Y", with_dims(first, dims));
  return Ok();
}

// Removes the axis from the dims of the input; its size is the number of outputs.
Status take_apart(InferContext& ctx, llvm::StringRef out_slot, int64_t expected,
                  bool with_offsets) {
  const VarMeta x = ctx.input("X");
  const size_t outputs = ctx.output_count(out_slot);
  if (!x.has_shape || outputs == 0) return Ok();
  if (x.rank() == 0) return ctx.error("X must have at least one dim");
  MILLRACE_ASSIGN_OR_RETURN(const int64_t axis,
                            checked_axis(ctx, "axis", ctx.attr<int64_t>("axis"), x.rank()));
  const int64_t size = x.dims[static_cast<size_t>(axis)];
  if (!dims_agree(size, static_cast<int64_t>(outputs)) || !dims_agree(size, expected)) {
    return ctx.error("dim {} of X {} must be the number of outputs, found {}", axis,
                     dims_text(x.dims), expected < 0 ? static_cast<int64_t>(outputs) : expected);
  }
  Dims dims = x.dims;
  dims.erase(dims.begin() + axis);
  VarMeta part = tensor_meta(x.dtype, dims);
  if (with_offsets) part.lod = x.lod;
  for (size_t i = 0; i < outputs; ++i) ctx.set_output(out_slot, part, i);
  return Ok();
}

Status infer_unstack(InferContext& ctx) {
  const auto num = ctx.attr<int64_t>("num");
  return take_apart(ctx, "Y", num > 0 ? num : -1, /*with_offsets=*/false);
}

Status infer_unbind(InferContext& ctx) {
  return take_apart(ctx, "Out", -1, /*with_offsets=*/true);
}

// The gradients of the parts, stacked along the axis.
Status infer_unstack_grad(InferContext& ctx) {
  VarMeta part = ctx.input("Y@GRAD");
  if (ctx.has_input("X")) part = ctx.input("X");
  if (!part.has_shape) return Ok();
  if (!ctx.has_input("X")) {
    MILLRACE_ASSIGN_OR_RETURN(
        const int64_t axis, checked_axis(ctx, "axis", ctx.attr<int64_t>("axis"), part.rank() + 1));
    part.dims.insert(part.dims.begin() + axis, static_cast<int64_t>(ctx.input_count("Y@GRAD")));
  }
  ctx.set_output("X@GRAD", std::move(part));
  return Ok();
}

// Gradients of the stacked parts have the shape of Y@GRAD without the axis.
Status infer_stack_grad(InferContext& ctx) {
  if (ctx.has_input("X")) {
    copy_each_without_offsets(ctx, "X", "X@GRAD");
    return Ok();
  }
  const VarMeta grad = ctx.input("Y@GRAD");
  if (!grad.has_shape || grad.rank() == 0) return Ok();
  MILLRACE_ASSIGN_OR_RETURN(const int64_t axis,
                            checked_axis(ctx, "axis", ctx.attr<int64_t>("axis"), grad.rank()));
  Dims dims = grad.dims;
  dims.erase(dims.begin() + axis);
  for (size_t i = 0; i < ctx.op().output("X@GRAD").size(); ++i)  // some may be absent
    ctx.set_output("X@GRAD", tensor_meta(grad.dtype, dims), i);
  return Ok();
}

// The gradient of unbind is a stack.
StatusOr<std::vector<GradOp>> unbind_grad(const GradContext& ctx) {
  std::vector<std::string> wanted = ctx.input_grad("X");
  if (wanted.empty()) return std::vector<GradOp>{};
  GradOp op("stack");
  op.input("X", ctx.output_grad("Out")).output("Y", std::move(wanted));
  if (const AttrValue* axis = ctx.forward().find_attr("axis")) op.attr("axis", *axis);
  return std::vector<GradOp>{std::move(op)};
}

}  // namespace
}  // namespace stack

/// stack, unstack, unbind
void add_tensor_stack(OpRegistry& registry) {
  using namespace stack;
  registry.add(OpDef("stack")
                   .doc("joins operands of one shape along a new dim")
                   .input("X", "all of the same shape", Arity::kMany)
                   .output("Y", "shape of X with the number of operands inserted")
                   .attr("axis", 0, "position of the new dim in Y")
                   .infer(infer)
                   .grad({.type = "stack_grad",
                          .inputs = {"X", "Y@GRAD"},
                          .outputs = {"X@GRAD"},
                          .infer = infer_stack_grad}));
  registry.add(OpDef("unstack")
                   .doc("splits X along a dim and removes that dim")
                   .input("X", "at least one dim")
                   .output("Y", "as many as the dim is large", Arity::kMany)
                   .attr("axis", 0, "dim to split")
                   .attr("num", 0, "size of the dim; 0: not stated")
                   .range(0)
                   .infer(infer_unstack)
                   .grad({.type = "unstack_grad",
                          .inputs = {"Y@GRAD"},
                          .outputs = {"X@GRAD"},
                          .infer = infer_unstack_grad}));
  registry.add(OpDef("unbind")
                   .doc("splits X along a dim and removes that dim")
                   .input("X", "at least one dim")
                   .output("Out", "as many as the dim is large", Arity::kMany)
                   .attr("axis", 0, "dim to split")
                   .infer(infer_unbind)
                   .grad(unbind_grad));
}

}  // namespace millrace::ops
