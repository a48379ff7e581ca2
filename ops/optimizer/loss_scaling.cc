#include "ops/infer_helpers.h"
#include "ops/lod_offsets.h"
#include "ops/registry.h"

namespace millrace::ops {
namespace {

Status infer_check(InferContext& ctx) {
  MILLRACE_RETURN_IF_ERROR(check_elements(ctx, "Scale", 1));
  copy_each_without_offsets(ctx, "X", "Out");
  ctx.set_output("FoundInfinite", DType::kBool, {1});
  return Ok();
}

Status infer_update(InferContext& ctx) {
  for (const char* const slot : {"FoundInfinite", "PrevLossScaling", "InGoodSteps", "InBadSteps"})
    MILLRACE_RETURN_IF_ERROR(check_elements(ctx, slot, 1));
  copy_each(ctx, "X", "Out");
  ctx.copy("PrevLossScaling", "LossScaling");
  ctx.copy("InGoodSteps", "OutGoodSteps");
  ctx.copy("InBadSteps", "OutBadSteps");
  return Ok();
}

OpDef check_finite_and_unscale() {
  return OpDef("check_finite_and_unscale")
      .doc("divides gradients by the loss scale and says whether one was not finite")
      .input("X", "gradients", Arity::kMany)
      .input("Scale", "one element")
      .output("Out", "X / Scale, the same vars", Arity::kMany)
      .output("FoundInfinite", "one bool")
      .infer(infer_check)
      .flops(elementwise_flops)
      .inplace("X", "Out");
}

OpDef update_loss_scaling() {
  return OpDef("update_loss_scaling")
      .doc("raises the loss scale after good steps, lowers it after bad ones, zeroes bad gradients")
      .input("X", "gradients", Arity::kAny)
      .input("FoundInfinite", "one bool")
      .input("PrevLossScaling", "one element")
      .input("InGoodSteps", "steps without infinities in a row, one element")
      .input("InBadSteps", "steps with infinities in a row, one element")
      .input("StopUpdate", "one bool; replaces stop_update", Arity::kOptional)
      .output("Out", "X, or zeros after a bad step", Arity::kAny)
      .output("LossScaling", "the new scale, the same var")
      .output("OutGoodSteps", "counter, the same var")
      .output("OutBadSteps", "counter, the same var")
      .required_attr<int32_t>("incr_every_n_steps", "good steps after which the scale rises")
      .range(1)
      .required_attr<int32_t>("decr_every_n_nan_or_inf", "bad steps after which the scale falls")
      .range(1)
      .required_attr<float>("incr_ratio", "factor > 1")
      .required_attr<float>("decr_ratio", "factor between 0 and 1")
      .range(0, 1)
      .attr("stop_update", false, "leave scale and counters as they are")
      .infer(infer_update)
      .flops(elementwise_flops)
      .inplace("X", "Out")
      .inplace("PrevLossScaling", "LossScaling")
      .inplace("InGoodSteps", "OutGoodSteps")
      .inplace("InBadSteps", "OutBadSteps");
}

}  // namespace

void add_optimizer_loss_scaling(OpRegistry& registry) {
  registry.add(check_finite_and_unscale());
  registry.add(update_loss_scaling());
}

}  // namespace millrace::ops
