#include "ops/infer_helpers.h"
#include "ops/lod_offsets.h"
#include "ops/registry.h"

namespace millrace::ops {
namespace {

Status infer_cumsum(InferContext& ctx) {
  const VarMeta& x = ctx.input("X");
  if (!dims_known(x)) return infer_unary(ctx);
  if (ctx.attr<bool>("flatten")) {
    ctx.set_output("Out", with_offsets_of(tensor_meta(x.dtype, {dims_product(x.dims)}), x));
    return Ok();
  }
  MILLRACE_RETURN_IF_ERROR(checked_axis(ctx, "axis", ctx.attr<int32_t>("axis"), x.rank()).status());
  return infer_unary(ctx);
}

Status infer_cumprod(InferContext& ctx) {
  const VarMeta& x = ctx.input("X");
  if (dims_known(x)) {
    MILLRACE_RETURN_IF_ERROR(checked_axis(ctx, "dim", ctx.attr<int32_t>("dim"), x.rank()).status());
  }
  return infer_unary(ctx);
}

}  // namespace

/// cumsum and cumprod.
void add_reduce_scans(OpRegistry& registry) {
  registry.add(
      OpDef("cumsum")
          .doc("running sum along an axis")
          .input("X", "any shape")
          .output("Out", "shape of X, or one dim if flatten")
          .attr("axis", -1, "dim along which to add")
          .attr("flatten", false, "treat X as one dim")
          .attr("exclusive", false, "leave the element itself out of its sum")
          .attr("reverse", false, "add from the end")
          .infer(infer_cumsum)
          .grad({.type = "cumsum_grad", .inputs = {"Out@GRAD", "X"}, .outputs = {"X@GRAD"}})
          .flops(elementwise_flops));
  registry.add(
      OpDef("cumprod")
          .doc("running product along an axis")
          .input("X", "any shape")
          .output("Out", "shape of X")
          .required_attr<int32_t>("dim", "dim along which to multiply")
          .infer(infer_cumprod)
          .grad({.type = "cumprod_grad", .inputs = {"Out", "Out@GRAD", "X"}, .outputs = {"X@GRAD"}})
          .flops(elementwise_flops));
}

}  // namespace millrace::ops
