#include "ops/infer_helpers.h"
#include "ops/registry.h"

// Dequantization to floating point, and the pair of ops of 2.x with scale and zero point.
namespace millrace::ops {
namespace linear_quant {
namespace {

using Ints = std::vector<int32_t>;

// Results are floating point, regardless of the type that stores the integers.
Status infer_dequantize(InferContext& ctx) {
  VarMeta out = ctx.input("X");
  if (!out.has_shape) return Ok();
  const VarMeta& scale = ctx.input("Scale");
  if (!is_floating(out.dtype)) out.dtype = scale.has_shape ? scale.dtype : DType::kFloat32;
  ctx.set_output("Out", std::move(out));
  return Ok();
}

Status infer_channel_wise(InferContext& ctx) {
  const VarMeta& x = ctx.input("X");
  const VarMeta& scale = ctx.input("Scales");
  if (ctx.attr<Ints>("quant_bits").size() < ctx.input_count("Scales")) {
    return ctx.error(
        "attribute 'quant_bits' has {} entries, expected {}, one for each var of "
        "'Scales'",
        ctx.attr<Ints>("quant_bits").size(), ctx.input_count("Scales"));
  }
  if (!x.has_shape) return Ok();
  VarMeta out = x;
  if (!is_floating(out.dtype)) out.dtype = scale.has_shape ? scale.dtype : DType::kFloat32;
  ctx.set_output("Out", std::move(out));
  return Ok();
}

Status infer_linear(InferContext& ctx) {
  const VarMeta& x = ctx.input("X");
  if (!x.has_shape) return Ok();
  const auto axis = ctx.attr<int32_t>("quant_axis");
  if (axis >= 0 && static_cast<size_t>(axis) >= x.rank()) {
    return ctx.error("attribute 'quant_axis' is {}, expected -1 or a dim of 'X' {}", axis,
                     dims_text(x.dims));
  }
  ctx.copy("X", "Y");
  ctx.copy("InState", "OutState");
  ctx.copy("InAccum", "OutAccum");
  const bool whole = axis < 0 || x.rank() == 0;
  ctx.set_output("OutScale", x.dtype, {whole ? 1 : x.dims[static_cast<size_t>(axis)]});
  return Ok();
}

OpDef linear(llvm::StringRef type, llvm::StringRef doc) {
  OpDef def(type);
  def.doc(doc)
      .input("X", "any shape")
      .input("Scale", "one element, or one for each channel")
      .input("ZeroPoint", "0, as no other is supported")
      .input("InAccum", "running sum of maxima", Arity::kOptional)
      .input("InState", "running count", Arity::kOptional)
      .output("Y", "shape of X")
      .output("OutState", "running count after", Arity::kOptional)
      .output("OutAccum", "running sum after", Arity::kOptional)
      .output("OutScale", "scale after", Arity::kOptional)
      .attr("quant_axis", 0, "channel dim; -1: one scale for all")
      .range(-1)
      .attr("bit_length", 8, "bits of the integers")
      .range(1, 16)
      .attr("round_type", 0, "0 half to even, 1 half away from zero")
      .range(0, 1)
      .attr("moving_rate", 0.9F, "decay of sum and count")
      .range(0, 1)
      .attr("is_test", true, "use the scale, do not update it")
      .attr("only_observer", false, "Y = X")
      .infer(infer_linear)
      .flops(elementwise_flops);
  return def;
}

}  // namespace
}  // namespace linear_quant

void add_quant_linear_quant(OpRegistry& registry) {
  using namespace linear_quant;
  registry.add(OpDef("fake_dequantize_max_abs")
                   .doc("Out = X * Scale / max_range")
                   .input("X", "integers")
                   .input("Scale", "one element")
                   .output("Out", "shape of X")
                   .required_attr<float>("max_range", "largest integer")
                   .infer(infer_dequantize)
                   .flops(elementwise_flops));
  registry.add(OpDef("dequantize_abs_max")
                   .doc("Out = X * Scale / max_range")
                   .input("X", "int8 or int16")
                   .input("Scale", "one element")
                   .output("Out", "shape of X")
                   .required_attr<float>("max_range", "largest integer")
                   .infer(infer_dequantize)
                   .flops(elementwise_flops));
  registry.add(OpDef("fake_channel_wise_dequantize_max_abs")
                   .doc("X times the scales of its channels over their largest integers")
                   .input("X", "integers")
                   .input("Scales", "one or two scales, of channels or of all", Arity::kMany)
                   .output("Out", "shape of X")
                   .attr("quant_bits", Ints{8}, "bits that belong to each scale")
                   .range(1, 31)
                   .attr("quant_axis", 0, "channel dim")
                   .range(0, 1)
                   .attr("x_num_col_dims", 1, "dims in front of the columns, if there are two")
                   .range(0)
                   .infer(infer_channel_wise)
                   .flops(elementwise_flops));
  registry.add(linear("quantize_linear", "Y = round(X / Scale * largest integer), kept in range"));
  registry.add(linear("dequantize_linear", "Y = X * Scale / largest integer"));
}

}  // namespace millrace::ops
