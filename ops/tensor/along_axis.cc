#include "ops/infer_helpers.h"
#include "ops/lod_offsets.h"
#include "ops/registry.h"
#include "ops/tensor/helpers.h"

namespace millrace::ops {
namespace {

Status check(const InferContext& ctx) {
  const VarMeta& input = ctx.input("Input");
  const VarMeta& index = ctx.input("Index");
  if (!input.has_shape) return Ok();
  MILLRACE_RETURN_IF_ERROR(
      checked_axis(ctx, "Axis", ctx.attr<int64_t>("Axis"), input.rank()).status());
  if (!index.has_shape || index.rank() == input.rank()) return Ok();
  return ctx.error("Input {} and Index {} must have the same rank", dims_text(input.dims),
                   dims_text(index.dims));
}

Status infer_take(InferContext& ctx) {
  MILLRACE_RETURN_IF_ERROR(check(ctx));
  VarMeta out = without_offsets(ctx.input("Index"));
  out.dtype = ctx.input("Input").dtype;
  ctx.set_output("Result", std::move(out));
  return Ok();
}

Status infer_put(InferContext& ctx) {
  MILLRACE_RETURN_IF_ERROR(check(ctx));
  MILLRACE_RETURN_IF_ERROR(check_same_dims(ctx, "Index", "Value"));
  ctx.copy("Input", "Result");
  return Ok();
}

Status infer_put_grad(InferContext& ctx) {
  ctx.copy("Input", "Input@GRAD");
  ctx.set_output("Value@GRAD", with_offsets_of(ctx.input("Value"), ctx.input("Index")));
  return Ok();
}

}  // namespace

/// take_along_axis, put_along_axis
void add_tensor_along_axis(OpRegistry& registry) {
  registry.add(OpDef("take_along_axis")
                   .doc("elements of Input whose coordinate along Axis is given by Index")
                   .input("Input", "any shape")
                   .input("Index", "int32 or int64; rank of Input")
                   .output("Result", "shape of Index, dtype of Input")
                   .required_attr<int32_t>("Axis", "dim to pick from")
                   .infer(infer_take)
                   .grad({.type = "take_along_axis_grad",
                          .inputs = {"Input", "Index", "Result@GRAD"},
                          .outputs = {"Input@GRAD"}}));
  registry.add(OpDef("put_along_axis")
                   .doc("Input with Value written to the coordinates given by Index along Axis")
                   .input("Input", "any shape")
                   .input("Index", "int32 or int64; rank of Input")
                   .input("Value", "shape of Index")
                   .output("Result", "shape and dtype of Input")
                   .required_attr<int32_t>("Axis", "dim to write to")
                   .attr("Reduce", "assign", "how values are combined with the old elements")
                   .one_of({"assign", "add", "mul", "multiply", "mean", "amin", "amax"})
                   .attr("Include_self", true, "the element of Input takes part in the reduction")
                   .infer(infer_put)
                   .grad({.type = "put_along_axis_grad",
                          .inputs = {"Input", "Index", "Value", "Result", "Result@GRAD"},
                          .outputs = {"Input@GRAD", "Value@GRAD"},
                          .infer = infer_put_grad})
                   .inplace("Input", "Result"));
}

}  // namespace millrace::ops
