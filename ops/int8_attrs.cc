#include "ops/int8_attrs.h"

#include "ops/infer_helpers.h"

namespace millrace::ops {

OpDef& add_int8_attrs(OpDef& def) {
  return def.input("InScale", "magnitude that 127 represents in the input, one element")
      .input("WeightScale", "that of the weights: one element, or one for each output channel",
             Arity::kOptional)
      .input("WeightZeroPoint", "with integer_weights: 0, as no other is supported",
             Arity::kOptional)
      .output("OutWeightScale", "the scales that the weights were quantized by", Arity::kOptional)
      .attr("input_round_type", 1, "0 half to even, 1 half away from zero")
      .range(0, 1)
      .attr("weight_round_type", 1, "0 half to even, 1 half away from zero")
      .range(0, 1)
      .attr("channel_wise", false, "without WeightScale: one scale for each output channel")
      .attr("integer_weights", false, "the weights are integers, from -128 to 127")
      .attr("weight_scale", 0.0F, "with integer_weights, replaces WeightScale; 0: not set")
      .range(0);
}

Status infer_int8_scales(InferContext& ctx, int64_t channels) {
  const VarMeta& in = ctx.input("InScale");
  if (dims_known(in) && dims_product(in.dims) != 1)
    return ctx.error("'InScale' has shape {}, expected one element", dims_text(in.dims));
  const bool integers = ctx.attr<bool>("integer_weights");
  const bool fixed = ctx.attr<float>("weight_scale") != 0;
  if (fixed && (!integers || ctx.has_input("WeightScale")))
    return ctx.error(
        "attribute 'weight_scale' is set, expected 'integer_weights' and no input 'WeightScale'");
  if (integers && !fixed && !ctx.has_input("WeightScale"))
    return ctx.error(
        "attribute 'integer_weights' is set, expected 'WeightScale' or 'weight_scale'");
  if (ctx.has_input("WeightZeroPoint") && !integers)
    return ctx.error("'WeightZeroPoint' is set, expected attribute 'integer_weights'");
  for (const char* const slot : {"WeightScale", "WeightZeroPoint"}) {
    const VarMeta& values = ctx.input(slot);
    if (!ctx.has_input(slot) || !dims_known(values)) continue;
    const int64_t count = dims_product(values.dims);
    if (count != 1 && !dims_agree(count, channels))
      return ctx.error("'{}' has shape {}, expected one element or {}", slot,
                       dims_text(values.dims), channels);
  }
  const bool each = ctx.attr<bool>("channel_wise");
  ctx.set_output("OutWeightScale", DType::kFloat32, {each ? channels : 1});
  return Ok();
}

}  // namespace millrace::ops
