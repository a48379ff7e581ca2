#include "ops/infer_helpers.h"
#include "ops/lod_offsets.h"
#include "ops/registry.h"

// Simulated quantization: values are rounded to scaled integers, in floating point. Ops with
// "quantize_dequantize" also convert back to the original range; the others write integers to a
// float tensor.
namespace millrace::ops {
namespace fake_quant {
namespace {

Status infer_fake(InferContext& ctx) {
  ctx.copy("X", "Out");
  ctx.set_output("OutScale", ctx.input("X").dtype, {1});
  if (ctx.has_input("InState")) ctx.copy("InState", "OutState");
  if (ctx.has_input("InAccum")) ctx.copy("InAccum", "OutAccum");
  return Ok();
}

Status infer_range(InferContext& ctx) {
  MILLRACE_RETURN_IF_ERROR(infer_fake(ctx));
  ctx.set_output("OutScales", ctx.input("X").dtype, {ctx.attr<int32_t>("window_size")});
  return Ok();
}

// One scale for each index of the channel dim.
Status infer_channel_wise(InferContext& ctx) {
  ctx.copy("X", "Out");
  const VarMeta& x = ctx.input("X");
  if (!dims_known(x)) return Ok();
  const auto axis = ctx.attr<int32_t>("quant_axis");
  if (static_cast<size_t>(axis) >= x.rank())
    return ctx.error("attribute 'quant_axis' is {}, expected a dim of 'X' {}", axis,
                     dims_text(x.dims));
  ctx.set_output("OutScale", x.dtype, {x.dims[static_cast<size_t>(axis)]});
  return Ok();
}

Status infer_straight_through(InferContext& ctx) {
  ctx.set_output("X@GRAD", without_offsets(ctx.input("Out@GRAD")));
  return Ok();
}

// Rounding has no useful derivative, so the gradient is passed through unchanged. The misspelt op
// type is that of the original.
GradSpec straight_through() {
  return {"stright_throuth_estimator_grad", {"Out@GRAD"}, {"X@GRAD"}, {}};
}

OpDef fake_op(llvm::StringRef type, llvm::StringRef doc) {
  OpDef def(type);
  def.doc(doc)
      .input("X", "any shape")
      .output("Out", "shape of X")
      .infer(infer_fake)
      .flops(elementwise_flops)
      .inplace("X", "Out");
  return def;
}

OpDef bits(OpDef def) {
  def.attr("bit_length", 8, "bits of the integers")
      .range(1, 16)
      .attr("round_type", 1, "0 half to even, 1 half away from zero")
      .range(0, 1);
  return def;
}

OpDef moving(OpDef def) {
  def.input("InAccum", "running sum of maxima, one element", Arity::kOptional)
      .input("InState", "running count, one element", Arity::kOptional)
      .output("OutState", "running count after", Arity::kOptional)
      .output("OutAccum", "running sum after", Arity::kOptional)
      .attr("moving_rate", 0.9F, "decay of sum and count")
      .range(0, 1)
      .attr("is_test", false, "use the scale, do not update it");
  return def;
}

OpDef scaled(OpDef def) {
  def.output("OutScale", "largest absolute value, one element");
  return def;
}

OpDef in_scale(OpDef def) {
  def.input("InScale", "scale so far, one element");
  return def;
}

OpDef channel_wise(llvm::StringRef type, llvm::StringRef doc) {
  OpDef def = bits(fake_op(type, doc));
  def.output("OutScale", "largest absolute value of each channel")
      .attr("quant_axis", 0, "channel dim")
      .range(0, 1)
      .infer(infer_channel_wise);
  return def;
}

}  // namespace
}  // namespace fake_quant

void add_quant_fake_quant(OpRegistry& registry) {
  using namespace fake_quant;
  registry.add(OpDef("stright_throuth_estimator_grad")
                   .doc("X@GRAD = Out@GRAD")
                   .input("Out@GRAD", "gradient of the rounded values")
                   .output("X@GRAD", "the same", Arity::kOptional)
                   .infer(infer_straight_through)
                   .inplace("Out@GRAD", "X@GRAD"));
  registry.add(bits(scaled(fake_op("fake_quantize_abs_max", "integers by the largest value"))));
  registry.add(
      bits(scaled(fake_op("fake_quantize_dequantize_abs_max", "rounded by the largest value")))
          .grad(straight_through()));
  registry.add(channel_wise("fake_channel_wise_quantize_abs_max",
                            "integers by the largest value of each channel")
                   .attr("is_test", false, "use the scale, do not update it"));
  registry.add(channel_wise("fake_channel_wise_quantize_dequantize_abs_max",
                            "rounded by the largest value of each channel")
                   .grad(straight_through()));
  registry.add(bits(moving(in_scale(scaled(
      fake_op("fake_quantize_moving_average_abs_max", "integers by a moving mean of maxima"))))));
  registry.add(
      bits(moving(in_scale(scaled(fake_op("fake_quantize_dequantize_moving_average_abs_max",
                                          "rounded by a moving mean of maxima")))))
          .grad(straight_through()));
  registry.add(bits(in_scale(scaled(fake_op("fake_quantize_range_abs_max",
                                            "integers by the largest of a window of maxima"))))
                   .input("Iter", "training step, one element", Arity::kOptional)
                   .output("OutScales", "maxima of the window", Arity::kOptional)
                   .output("OutIter", "old form: step after", Arity::kOptional)
                   .attr("window_size", 10000, "steps of the window")
                   .range(1)
                   .attr("is_test", false, "use the scale, do not update it")
                   .infer(infer_range));
  OpDef observer("moving_average_abs_max_scale");
  observer.doc("moving mean of maxima; Out = X")
      .input("X", "any shape")
      .output("Out", "copy of X", Arity::kOptional)
      .infer(infer_fake)
      .inplace("X", "Out");
  registry.add(moving(scaled(observer)).grad(straight_through()));
}

}  // namespace millrace::ops
