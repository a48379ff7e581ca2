#include "ops/infer_helpers.h"
#include "ops/registry.h"

namespace millrace::ops {
namespace label_smooth {
namespace {

Status infer(InferContext& ctx) {
  const VarMeta& x = ctx.input("X");
  if (ctx.has_input("PriorDist") && dims_known(x) && !x.dims.empty() && x.dims.back() >= 0)
    MILLRACE_RETURN_IF_ERROR(check_elements(ctx, "PriorDist", x.dims.back()));
  return infer_unary(ctx);
}

}  // namespace
}  // namespace label_smooth

void add_loss_label_smooth(OpRegistry& registry) {
  registry.add(
      OpDef("label_smooth")
          .doc("(1 - epsilon) * X + epsilon * prior, where the prior is uniform unless given")
          .input("X", "one-hot labels, classes in the last dim")
          .input("PriorDist", "probabilities of the classes", Arity::kOptional)
          .output("Out", "shape of X")
          .attr("epsilon", 0.0F, "weight of the prior")
          .range(0, 1)
          .infer(label_smooth::infer)
          .grad({.type = "label_smooth_grad",
                 .inputs = {"Out@GRAD"},
                 .outputs = {"X@GRAD"},
                 .shape_like = {{"X@GRAD", "Out@GRAD"}}})
          .flops(elementwise_flops)
          .inplace("X", "Out"));
}

}  // namespace millrace::ops
