#include "ops/infer_helpers.h"
#include "ops/registry.h"

namespace millrace::ops {
namespace dist {
namespace {

Status infer(InferContext& ctx) {
  MILLRACE_RETURN_IF_ERROR(broadcast_dims(ctx, "X", "Y", -1).status());
  ctx.set_output("Out", ctx.input("X").dtype, {});
  return Ok();
}

}  // namespace
}  // namespace dist

void add_math_dist(OpRegistry& registry) {
  registry.add(OpDef("dist")
                   .doc("p-norm of X - Y")
                   .input("X", "any shape")
                   .input("Y", "a shape that broadcasts with X")
                   .output("Out", "rank 0")
                   .attr("p", 2.0F, "order of the norm; 0 and infinities as in p_norm")
                   .infer(dist::infer)
                   .grad({.type = "dist_grad",
                          .inputs = {"Out", "Out@GRAD", "X", "Y"},
                          .outputs = {"X@GRAD", "Y@GRAD"}})
                   .flops(elementwise_flops));
}

}  // namespace millrace::ops
