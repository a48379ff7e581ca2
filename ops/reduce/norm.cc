#include "ops/infer_helpers.h"
#include "ops/lod_offsets.h"
#include "ops/registry.h"

namespace millrace::ops {
namespace norm_ops {
namespace {

Status infer(InferContext& ctx) {
  const VarMeta& x = ctx.input("X");
  VarMeta norm = x;
  norm.lod_level = 0;
  norm.lod = {};
  if (dims_known(x)) {
    MILLRACE_ASSIGN_OR_RETURN(const int64_t axis,
                              checked_axis(ctx, "axis", ctx.attr<int32_t>("axis"), x.rank()));
    if (!norm.dims.empty()) norm.dims[static_cast<size_t>(axis)] = 1;
  }
  ctx.set_output("Norm", std::move(norm));
  ctx.set_output("Out", without_offsets(x));
  return Ok();
}

double flops(const InferContext& ctx) {
  return 3 * elementwise_flops(ctx);
}

}  // namespace
}  // namespace norm_ops

void add_reduce_norm(OpRegistry& registry) {
  using namespace norm_ops;
  registry.add(
      OpDef("norm")
          .doc("X divided by its 2-norm along an axis")
          .input("X", "any shape")
          .output("Out", "shape of X")
          .intermediate("Norm", "the norms; size 1 along the axis")
          .required_attr<int32_t>("axis", "dim along which the norm is taken")
          .attr("epsilon", 1e-10F, "added to the sum of squares under the root")
          .infer(infer)
          .grad({.type = "norm_grad", .inputs = {"Norm", "Out@GRAD", "X"}, .outputs = {"X@GRAD"}})
          .flops(flops));
}

}  // namespace millrace::ops
