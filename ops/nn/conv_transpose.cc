#include "ops/infer_helpers.h"
#include "ops/lod_offsets.h"
#include "ops/nn/window.h"
#include "ops/registry.h"

namespace millrace::ops {
namespace conv_transpose {
namespace {

// The size that follows from strides and kernel, before output_size or output_padding.
int64_t natural_size(const Window& window, size_t i, int64_t size) {
  if (!window_is_sane(window, i, size)) return -1;
  return (size - 1) * window.strides[i] - window.before[i] - window.after[i] +
         window.dilations[i] * (window.kernel[i] - 1) + 1;
}

// Several input sizes of a strided convolution have the same output size, so the inverse is
// ambiguous; output_size or output_padding selects one.
StatusOr<int64_t> chosen_size(const InferContext& ctx, const Window& window, size_t i,
                              int64_t natural) {
  const auto wanted = ctx.attr<std::vector<int32_t>>("output_size");
  const auto extra = ctx.attr<std::vector<int32_t>>("output_padding");
  if (i < wanted.size() && wanted[i] > 0) {
    if (natural >= 0 && (wanted[i] < natural || wanted[i] >= natural + window.strides[i])) {
      return ctx.error("attribute 'output_size' is {} in spatial dim {}, expected [{}, {})",
                       wanted[i], i, natural, natural + window.strides[i]);
    }
    return wanted[i];
  }
  if (natural >= 0 && i < extra.size()) natural += extra[i];
  if (natural == 0 || natural < -1) {
    return ctx.error("spatial dim {} of Output would be {}", i, natural);
  }
  return natural;
}

StatusOr<std::optional<Dims>> output_dims(const InferContext& ctx) {
  MILLRACE_ASSIGN_OR_RETURN(const bool known, conv_shapes_known(ctx));
  if (!known) return std::optional<Dims>{};
  const VarMeta& input = ctx.input("Input");
  const VarMeta& filter = ctx.input("Filter");
  // The three-dimensional op of 2.6.2 treats NDHWC as NCDHW.
  const bool last = ctx.attr<std::string>("data_format") == "NHWC";
  const size_t channel = channel_dim(input, last);
  if (!dims_agree(input.dims[channel], filter.dims[0])) {
    return ctx.error("Input {} must have the {} channels of Filter {}", dims_text(input.dims),
                     filter.dims[0], dims_text(filter.dims));
  }
  const auto spatial = spatial_dims(input, last);
  MILLRACE_ASSIGN_OR_RETURN(
      const Window window,
      read_window(ctx, llvm::ArrayRef<int64_t>(filter.dims).drop_front(2), spatial));
  Dims out = input.dims;
  out[channel] = dims_product({filter.dims[1], ctx.attr<int64_t>("groups")});
  for (size_t i = 0; i < spatial.size(); ++i) {
    int64_t natural = natural_size(window, i, spatial[i]);
    // -1 means an unknown size, but an impossible window can yield it, too.
    if (natural == -1 && window_is_sane(window, i, spatial[i])) natural = 0;
    MILLRACE_ASSIGN_OR_RETURN(out[first_spatial(last) + i], chosen_size(ctx, window, i, natural));
  }
  return std::optional<Dims>(std::move(out));
}

Status infer(InferContext& ctx) {
  MILLRACE_ASSIGN_OR_RETURN(const std::optional<Dims> dims, output_dims(ctx));
  set_conv_output(ctx, dims);
  return Ok();
}

// A product and a sum for every element of Input and of its filter; twice for the gradients.
double flops(const InferContext& ctx) {
  const VarMeta& filter = ctx.input("Filter");
  if (!filter.has_shape || filter.dims.empty()) return 0;
  const double passes = ctx.has_input("Output@GRAD") ? 2 : 1;
  return passes * filter_operations(filter) * element_count(ctx.input("Input"));
}

OpDef family(llvm::StringRef type, llvm::StringRef grad_type, size_t spatial, llvm::StringRef doc) {
  OpDef def(type);
  def.doc(doc)
      .input("Input", "images, see data_format")
      .input("Filter", "[input channels, output channels / groups, kernel...]")
      .input("Bias", "one for each output channel; of programs for inference", Arity::kOptional)
      .output("Output", "images");
  add_conv_attrs(def, spatial)
      .attr("output_padding", std::vector<int32_t>{}, "added to the size of each spatial dim")
      .range(0)
      .attr("output_size", std::vector<int32_t>{}, "sizes of the spatial dims; empty: smallest")
      .infer(infer)
      .flops(flops)
      .grad({.type = grad_type,
             .inputs = {"Input", "Filter", "Bias", "Output@GRAD"},
             .outputs = {"Input@GRAD", "Filter@GRAD"}});
  return def;
}

}  // namespace
}  // namespace conv_transpose

/// conv2d_transpose, depthwise_conv2d_transpose, conv3d_transpose
void add_nn_conv_transpose(OpRegistry& registry) {
  using namespace conv_transpose;
  registry.add(family("conv2d_transpose", "conv2d_transpose_grad", 2,
                      "the gradient of a two-dimensional convolution as a forward op"));
  registry.add(family("depthwise_conv2d_transpose", "depthwise_conv2d_transpose_grad", 2,
                      "conv2d_transpose, every channel separately"));
  registry.add(family("conv3d_transpose", "conv3d_transpose_grad", 3,
                      "the gradient of a three-dimensional convolution as a forward op"));
}

}  // namespace millrace::ops
