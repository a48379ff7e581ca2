#include "ops/infer_helpers.h"
#include "ops/lod_offsets.h"
#include "ops/registry.h"

namespace millrace::ops {
namespace kldiv_loss {
namespace {

Status infer(InferContext& ctx) {
  MILLRACE_RETURN_IF_ERROR(check_same_dims(ctx, "X", "Target"));
  if (ctx.attr<std::string>("reduction") == "none") {
    ctx.set_output("Loss", without_offsets(ctx.input("X")));
  } else {
    ctx.set_output("Loss", ctx.input("X").dtype, {});
  }
  return Ok();
}

}  // namespace
}  // namespace kldiv_loss

void add_loss_kldiv_loss(OpRegistry& registry) {
  registry.add(OpDef("kldiv_loss")
                   .doc("divergence of two distributions, X given as logarithms")
                   .input("X", "logarithms of probabilities")
                   .input("Target", "probabilities, shape of X")
                   .output("Loss", "shape of X, or rank 0")
                   .attr("reduction", "mean", "how the values are reduced")
                   .one_of({"none", "mean", "sum", "batchmean"})
                   .infer(kldiv_loss::infer)
                   .grad({.type = "kldiv_loss_grad",
                          .inputs = {"Loss@GRAD", "Target", "X"},
                          .outputs = {"X@GRAD"}})
                   .flops(elementwise_flops));
}

}  // namespace millrace::ops
