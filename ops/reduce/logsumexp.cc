#include "ops/infer_helpers.h"
#include "ops/lod_offsets.h"
#include "ops/registry.h"

namespace millrace::ops {
namespace logsumexp {
namespace {

Status infer(InferContext& ctx) {
  return infer_over_axes(ctx, ctx.attr<std::vector<int64_t>>("axis"), ctx.attr<bool>("reduce_all"));
}

double flops(const InferContext& ctx) {
  return 4 * elementwise_flops(ctx);
}

}  // namespace
}  // namespace logsumexp

void add_reduce_logsumexp(OpRegistry& registry) {
  using namespace logsumexp;
  registry.add(OpDef("logsumexp")
                   .doc("logarithm of the sum of exponentials over axes, without overflow")
                   .input("X", "any shape")
                   .output("Out", "X without the reduced dims, or with size 1 for them")
                   .attr("axis", std::vector<int32_t>{0}, "axes to reduce; empty: all")
                   .attr("keepdim", false, "keep reduced dims with size 1")
                   .attr("reduce_all", false, "reduce every axis, regardless of axis")
                   .infer(infer)
                   .grad({.type = "logsumexp_grad",
                          .inputs = {"Out", "Out@GRAD", "X"},
                          .outputs = {"X@GRAD"},
                          .infer = infer_grad_without_offsets})
                   .flops(flops));
}

}  // namespace millrace::ops
