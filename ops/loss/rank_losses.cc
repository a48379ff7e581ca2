#include "ops/infer_helpers.h"
#include "ops/lod_offsets.h"
#include "ops/registry.h"

namespace millrace::ops {
namespace {

Status infer_rank(InferContext& ctx) {
  MILLRACE_RETURN_IF_ERROR(check_same_count(ctx, "Left", "Right"));
  MILLRACE_RETURN_IF_ERROR(check_same_count(ctx, "Left", "Label"));
  // the scores or the labels may lack the last dim that the other has
  VarMeta out = ctx.input("Label");
  out.dtype = ctx.input("Left").dtype;
  ctx.set_output("Out", without_offsets(std::move(out)));
  return Ok();
}

Status infer_margin_rank(InferContext& ctx) {
  MILLRACE_RETURN_IF_ERROR(check_same_count(ctx, "X1", "X2"));
  MILLRACE_RETURN_IF_ERROR(check_same_count(ctx, "X1", "Label"));
  ctx.copy("X1", "Activated");
  ctx.copy("X1", "Out");
  return Ok();
}

}  // namespace

/// Losses that rank two scores.
void add_loss_rank_losses(OpRegistry& registry) {
  registry.add(OpDef("rank_loss")
                   .doc("log(1 + exp(Left - Right)) - Label * (Left - Right)")
                   .input("Label", "1 if Left should rank higher, else 0")
                   .input("Left", "scores [n, 1]")
                   .input("Right", "scores [n, 1]")
                   .output("Out", "shape of Label")
                   .infer(infer_rank)
                   .grad({.type = "rank_loss_grad",
                          .inputs = {"Label", "Left", "Out@GRAD", "Right"},
                          .outputs = {"Left@GRAD", "Right@GRAD"},
                          .infer = infer_grad_without_offsets})
                   .flops(elementwise_flops));
  registry.add(OpDef("margin_rank_loss")
                   .doc("max(0, margin - Label * (X1 - X2))")
                   .input("Label", "1 if X1 should rank higher, -1 if X2")
                   .input("X1", "scores [n, 1]")
                   .input("X2", "scores [n, 1]")
                   .intermediate("Activated", "1 where the loss is not 0")
                   .output("Out", "[n, 1]")
                   .attr("margin", 0.0F, "distance by which the scores should differ")
                   .infer(infer_margin_rank)
                   .grad({.type = "margin_rank_loss_grad",
                          .inputs = {"Activated", "Label", "Out@GRAD"},
                          .outputs = {"X1@GRAD", "X2@GRAD"},
                          .shape_like = {{"X1@GRAD", "Label"}, {"X2@GRAD", "Label"}}})
                   .flops(elementwise_flops));
}

}  // namespace millrace::ops
