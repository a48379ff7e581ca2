#include "ops/infer_helpers.h"
#include "ops/int8_attrs.h"
#include "ops/lod_offsets.h"
#include "ops/nn/window.h"
#include "ops/registry.h"

namespace millrace::ops {
namespace conv {
namespace {

// Filter is [output channels, input channels of a group, kernel...] in every data format.
Status check_channels(const InferContext& ctx, const VarMeta& input, const VarMeta& filter,
                      bool last) {
  const auto groups = ctx.attr<int64_t>("groups");
  const int64_t channels = input.dims[channel_dim(input, last)];
  const int64_t of_group = filter.dims[1];
  MILLRACE_RETURN_IF_ERROR(check_positive(ctx, "groups", groups));
  const int64_t wanted = dims_product({of_group, groups});
  if (!dims_agree(channels, wanted)) {
    return ctx.error("Input {} must have {} channels, {} of Filter {} times attribute 'groups' {}",
                     dims_text(input.dims), wanted, of_group, dims_text(filter.dims), groups);
  }
  if (filter.dims[0] >= 0 && filter.dims[0] % groups != 0) {
    return ctx.error("attribute 'groups' ({}) does not divide the {} output channels of Filter {}",
                     groups, filter.dims[0], dims_text(filter.dims));
  }
  return Ok();
}

// Dims of Output; nullopt if a shape is unknown.
StatusOr<std::optional<Dims>> output_dims(const InferContext& ctx) {
  const bool last = channels_last(ctx, "data_format");
  MILLRACE_ASSIGN_OR_RETURN(const bool known, conv_shapes_known(ctx));
  if (!known) return std::optional<Dims>{};
  const VarMeta& input = ctx.input("Input");
  const VarMeta& filter = ctx.input("Filter");
  MILLRACE_RETURN_IF_ERROR(check_channels(ctx, input, filter, last));
  const auto spatial = spatial_dims(input, last);
  MILLRACE_ASSIGN_OR_RETURN(
      const Window window,
      read_window(ctx, llvm::ArrayRef<int64_t>(filter.dims).drop_front(2), spatial));
  MILLRACE_ASSIGN_OR_RETURN(const Dims places, conv_spatial(ctx, spatial, window));
  Dims out = input.dims;
  out[channel_dim(input, last)] = filter.dims[0];
  std::copy(places.begin(), places.end(),
            out.begin() + static_cast<std::ptrdiff_t>(first_spatial(last)));
  return std::optional<Dims>(std::move(out));
}

// Infers Output, and Outputs, which hold groups of its channels.
Status infer_conv_fusion(InferContext& ctx) {
  const VarMeta input = ctx.input("Input");
  MILLRACE_ASSIGN_OR_RETURN(const std::optional<Dims> dims, output_dims(ctx));
  const auto parts = ctx.attr<std::vector<int64_t>>("split_channels");
  if (parts.size() != ctx.output_count("Outputs")) {
    return ctx.error(
        "Outputs must have a var for each of the {} entries of attribute "
        "'split_channels', found {}",
        parts.size(), ctx.output_count("Outputs"));
  }
  if (!dims) {
    ctx.set_output("Output", shapeless_meta(input.dtype));
    for (size_t i = 0; i < parts.size(); ++i)
      ctx.set_output("Outputs", shapeless_meta(input.dtype), i);
    return Ok();
  }
  ctx.set_output("Output", without_offsets(with_dims(input, *dims)));
  const size_t channel = channel_dim(input, channels_last(ctx, "data_format"));
  int64_t total = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (parts[i] < 1)
      return ctx.error("attribute 'split_channels' must be at least 1, found {}", parts[i]);
    total += parts[i];
    Dims part = *dims;
    part[channel] = parts[i];
    ctx.set_output("Outputs", without_offsets(with_dims(input, part)), i);
  }
  if (parts.empty() || dims_agree(total, (*dims)[channel])) return Ok();
  return ctx.error("attribute 'split_channels' adds up to {}, expected the {} channels of Output",
                   total, (*dims)[channel]);
}

Status infer(InferContext& ctx) {
  MILLRACE_ASSIGN_OR_RETURN(const std::optional<Dims> dims, output_dims(ctx));
  set_conv_output(ctx, dims);
  return Ok();
}

// A product and a sum for every element of Output and of one filter; twice for the gradients.
double flops(const InferContext& ctx) {
  const size_t gradients = ctx.output_count("Input@GRAD") + ctx.output_count("Filter@GRAD");
  const double passes = ctx.has_input("Output@GRAD") ? static_cast<double>(gradients) : 1;
  return passes * conv_operations(ctx, output_dims(ctx));
}

OpDef family(llvm::StringRef type, llvm::StringRef grad_type, size_t spatial, llvm::StringRef doc) {
  OpDef def(type);
  def.doc(doc)
      .input("Input", "images, see data_format")
      .input("Filter", "[output channels, input channels / groups, kernel...]")
      .input("Bias", "one for each output channel; of programs for inference", Arity::kOptional)
      .input("ResidualData", "summand of the shape of Output; of programs for inference",
             Arity::kOptional)
      .output("Output", "images");
  add_conv_attrs(def, spatial)
      .infer(infer)
      .flops(flops)
      .grad({.type = grad_type,
             .inputs = {"Input", "Filter", "Bias", "Output@GRAD"},
             .outputs = {"Input@GRAD", "Filter@GRAD", "Bias@GRAD"}});
  return def;
}

Status infer_fused(InferContext& ctx) {
  if (!ctx.attr<bool>("residual_first")) return infer(ctx);
  const VarMeta& input = ctx.input("Input");
  MILLRACE_ASSIGN_OR_RETURN(const std::optional<Dims> dims, output_dims(ctx));
  const VarMeta out = dims ? with_dims(input, *dims) : shapeless_meta(input.dtype);
  ctx.set_output("Output", with_offsets_of(out, ctx.input("ResidualData")));
  return Ok();
}

// Slots and attributes of the ops that passes make of a convolution and the ops after it, in
// programs for inference.
OpDef fused(llvm::StringRef type, llvm::StringRef doc) {
  OpDef def(type);
  def.doc(doc)
      .input("Input", "images, see data_format")
      .input("Filter", "[output channels, input channels / groups, kernel...]")
      .input("Bias", "one for each output channel, before the normalization", Arity::kOptional)
      .input("Scale", "of batch_norm: factor of each channel", Arity::kOptional)
      .input("Shift", "of batch_norm: summand of each channel", Arity::kOptional)
      .input("Mean", "of batch_norm: given mean", Arity::kOptional)
      .input("Variance", "of batch_norm: given variance", Arity::kOptional)
      .input("ResidualData", "summand of the shape of Output", Arity::kOptional)
      .output("Output", "images");
  return add_conv_attrs(def, 2)
      .attr("epsilon", 1e-5F, "added to the variance")
      .range(0)
      .attr("activation", "", "final activation; empty: none")
      .one_of({"", "relu", "relu6", "leaky_relu"})
      .attr("alpha", 0.0F, "slope of leaky_relu, threshold of relu6")
      .attr("residual_first", false, "Output has the LoD of ResidualData; else it has none")
      .infer(infer_fused)
      .flops(flops)
      .inplace("ResidualData", "Output");
}

OpDef fused_conv() {
  OpDef def = fused("fused_conv2d", "activation of the normalized convolution plus another image");
  def.attr("fuse_activation", "", "final activation, in programs that the original has fused")
      .one_of({"", "relu", "relu6", "leaky_relu"})
      .attr("fuse_alpha", 0.0F, "with fuse_activation: slope of leaky_relu; 0 for relu6")
      .attr("fuse_beta", 0.0F, "with fuse_activation: threshold of relu6")
      .attr("fuse_residual_connection", true, "add ResidualData")
      .attr("release_filter", false, "free Filter once its values are folded");
  return def;
}

Status infer_int8(InferContext& ctx) {
  MILLRACE_RETURN_IF_ERROR(infer_fused(ctx));
  const VarMeta& filter = ctx.input("Filter");
  if (ctx.has_input("OutScale")) {
    const auto activation = ctx.attr<std::string>("activation");
    if (ctx.has_input("ResidualData") || (activation != "relu" && activation != "relu6"))
      return ctx.error(
          "input 'OutScale' is set, expected activation relu or relu6 and no 'ResidualData'");
    const VarMeta& scale = ctx.input("OutScale");
    if (dims_known(scale) && dims_product(scale.dims) != 1)
      return ctx.error("'OutScale' has shape {}, expected one element", dims_text(scale.dims));
  }
  return infer_int8_scales(ctx, dims_known(filter) ? filter.dims[0] : -1);
}

// What pass int8-products makes of quantization, convolution and dequantization.
OpDef int8_op() {
  OpDef def = fused("int8_conv2d", "fused_conv2d of images and filters rounded to 8-bit integers");
  add_int8_attrs(def)
      .input("OutScale",
             "InScale of all ops that read Output, which are int8_conv2d: it may hold their "
             "integers, as uint8, instead of floats",
             Arity::kOptional)
      .infer(infer_int8);
  return def;
}

// The original's convolution for inference on a GPU, and its name since 2.6.
OpDef conv_fusion(llvm::StringRef type) {
  OpDef def(type);
  def.doc("activation of a convolution plus another image and a bias")
      .input("Input", "images, see data_format")
      .input("Filter", "[output channels, input channels / groups, kernel...]")
      .input("Bias", "one for each output channel", Arity::kOptional)
      .input("ResidualData", "summand of the shape of Output", Arity::kOptional)
      .input("AlgoCache", "of the GPU; not read", Arity::kOptional, kAnyKind)
      .output("Output", "images")
      .output("Outputs", "the channels of Output, split", Arity::kAny);
  return add_conv_attrs(def, 2)
      .attr("activation", "relu", "final activation; relux is relu, band_pass is refused")
      .one_of({"identity", "relu", "relu6", "sigmoid", "tanh", "swish", "leaky_relu", "relux",
               "band_pass"})
      .attr("split_channels", std::vector<int32_t>{}, "channels of each of Outputs")
      .attr("fuse_alpha", 0.0F, "slope of leaky_relu")
      .attr("exhaustive_search", false, "of the GPU, no effect")
      .attr("workspace_size_MB", 512, "of the GPU, no effect")
      .attr("search_times", -1, "of the GPU, no effect")
      .infer(infer_conv_fusion)
      .flops(flops);
}

}  // namespace
}  // namespace conv

/// conv2d, depthwise_conv2d, conv3d, fused_conv2d, int8_conv2d, conv2d_fusion,
/// fused_conv2d_add_act
void add_nn_conv(OpRegistry& registry) {
  using namespace conv;
  registry.add(family("conv2d", "conv2d_grad", 2, "two-dimensional convolution"));
  registry.add(family("depthwise_conv2d", "depthwise_conv2d_grad", 2,
                      "two-dimensional convolution, every channel separately"));
  registry.add(fused_conv());
  registry.add(int8_op());
  registry.add(conv_fusion("conv2d_fusion"));
  registry.add(conv_fusion("fused_conv2d_add_act"));
  registry.add(family("conv3d", "conv3d_grad", 3, "three-dimensional convolution"));
}

}  // namespace millrace::ops
