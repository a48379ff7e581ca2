#include "ops/infer_helpers.h"
#include "ops/registry.h"

namespace millrace::ops {
namespace p_norm {
namespace {

Status infer(InferContext& ctx) {
  return infer_over_axes(ctx, {ctx.attr<int64_t>("axis")}, ctx.attr<bool>("asvector"));
}

double flops(const InferContext& ctx) {
  return 3 * elementwise_flops(ctx);
}

}  // namespace
}  // namespace p_norm

void add_reduce_p_norm(OpRegistry& registry) {
  using namespace p_norm;
  registry.add(
      OpDef("p_norm")
          .doc("p-norm along one axis")
          .input("X", "any shape")
          .output("Out", "X without the axis, or with size 1 for it")
          .attr("porder", 2.0F,
                "p; 0: number of elements that are not 0; infinities: extremes of the absolute "
                "values")
          .attr("axis", -1, "dim to reduce")
          .attr("epsilon", 1e-12F, "keeps the gradient finite at 0")
          .range(0)
          .attr("keepdim", false, "keep the reduced dim with size 1")
          .attr("asvector", false, "treat X as one vector")
          .infer(infer)
          .grad({.type = "p_norm_grad", .inputs = {"Out", "Out@GRAD", "X"}, .outputs = {"X@GRAD"}})
          .flops(flops));
}

}  // namespace millrace::ops
