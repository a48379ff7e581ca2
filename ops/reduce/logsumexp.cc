#include "ops/infer_helpers.h"
#include "ops/lod_offsets.h"
#include "ops/registry.h"

namespace millrace::ops {
namespace {

Status infer_logsumexp(InferContext& ctx) {
  return infer_over_axes(ctx, ctx.attr<std::vector<int64_t>>("axis"), ctx.attr<bool>("reduce_all"));
}

double flops_logsumexp(const InferContext& ctx) {
  return 4 * elementwise_flops(ctx);
}

}  // namespace

void add_reduce_logsumexp(OpRegistry& registry) {
  registry.add(OpDef("logsumexp")
                   .doc("logarithm of the sum of exponentials over axes, without overflow")
                   .input("X", "any shape")
                   .output("Out", "X without the reduced dims, or with size 1 for them")
                   .attr("axis", std::vector<int32_t>{0}, "axes to reduce; empty: all")
                   .attr("keepdim", false, "keep reduced dims with size 1")
                   .attr("reduce_all", false, "reduce every axis, regardless of axis")
                   .infer(infer_logsumexp)
                   .grad({.type = "logsumexp_grad",
                          .inputs = {"Out", "Out@GRAD", "X"},
                          .outputs = {"X@GRAD"},
                          .infer = infer_grad_without_offsets})
                   .flops(flops_logsumexp));
}

}  // namespace millrace::ops
