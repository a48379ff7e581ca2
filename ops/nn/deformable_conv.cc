#include "ops/infer_helpers.h"
#include "ops/nn/window.h"
#include "ops/registry.h"

namespace millrace::ops {
namespace deformable_conv_ops {
namespace {

// Offset and Mask hold values for every element of the kernel at every position of the window.
Status check_field(const InferContext& ctx, llvm::StringRef slot, int64_t channels,
                   llvm::ArrayRef<int64_t> places) {
  const VarMeta& field = ctx.input(slot);
  if (!field.has_shape) return Ok();
  const bool fits = field.rank() == 4 && dims_agree(field.dims[1], channels) &&
                    dims_agree(field.dims[2], places[0]) && dims_agree(field.dims[3], places[1]);
  if (fits) return Ok();
  return ctx.error("{} must be [batch, {}, {}, {}], found {}",
                   std::string_view(slot.data(), slot.size()), channels, places[0], places[1],
                   dims_text(field.dims));
}

StatusOr<std::optional<Dims>> output_dims(const InferContext& ctx) {
  const VarMeta& input = ctx.input("Input");
  const VarMeta& filter = ctx.input("Filter");
  MILLRACE_RETURN_IF_ERROR(check_rank(ctx, "Input", 4, 4));
  MILLRACE_RETURN_IF_ERROR(check_rank(ctx, "Filter", 4, 4));
  if (!input.has_shape || !filter.has_shape) return std::optional<Dims>{};
  const auto groups = ctx.attr<int64_t>("groups");
  const int64_t channels = dims_product({filter.dims[1], groups});
  if (!dims_agree(input.dims[1], channels)) {
    return ctx.error("Input {} must have {} channels, {} of Filter times attribute 'groups' {}",
                     dims_text(input.dims), channels, filter.dims[1], groups);
  }
  const auto kernel = llvm::ArrayRef<int64_t>(filter.dims).drop_front(2);
  const auto spatial = spatial_dims(input, false);
  MILLRACE_ASSIGN_OR_RETURN(const Window window, read_window(ctx, kernel, spatial));
  MILLRACE_ASSIGN_OR_RETURN(const Dims places, conv_spatial(ctx, spatial, window));
  const int64_t taps = dims_product(kernel);
  const auto parts = ctx.attr<int64_t>("deformable_groups");
  if (taps >= 0) {
    MILLRACE_RETURN_IF_ERROR(check_field(ctx, "Offset", dims_product({2, parts, taps}), places));
    if (ctx.has_input("Mask"))
      MILLRACE_RETURN_IF_ERROR(check_field(ctx, "Mask", dims_product({parts, taps}), places));
  }
  return std::optional<Dims>(Dims{input.dims[0], filter.dims[0], places[0], places[1]});
}

Status infer(InferContext& ctx) {
  const VarMeta input = ctx.input("Input");
  MILLRACE_ASSIGN_OR_RETURN(const std::optional<Dims> dims, output_dims(ctx));
  ctx.set_output("Output", dims ? with_dims(input, *dims) : shapeless_meta(input.dtype));
  return Ok();
}

// As for a convolution, plus about eight operations to interpolate an element between four pixels.
double flops(const InferContext& ctx) {
  const double passes = ctx.has_input("Output@GRAD") ? 2 : 1;
  return passes * conv_operations(ctx, output_dims(ctx));
}

OpDef& add_deformable_attrs(OpDef& def) {
  return def.attr("strides", std::vector<int32_t>{1, 1}, "stride of the window in each spatial dim")
      .range(1)
      .attr("paddings", std::vector<int32_t>{0, 0}, "on both sides of each spatial dim")
      .attr("dilations", std::vector<int32_t>{1, 1}, "distance of the kernel's elements")
      .range(1)
      .attr("deformable_groups", 1, "channels of a group share offsets")
      .range(1)
      .attr("groups", 1, "channels are split into that many groups")
      .range(1)
      .attr("im2col_step", 64, "images that a kernel processes at once; no effect on the result")
      .infer(infer)
      .flops(flops);
}

OpDef deformable_conv() {
  OpDef def("deformable_conv");
  def.doc(
         "two-dimensional convolution that reads every element of the kernel at its own "
         "position, weighted")
      .input("Input", "[batch, channels, height, width]")
      .input("Offset", "[batch, 2 * deformable_groups * kernel, height, width of Output]")
      .input("Filter", "[output channels, input channels / groups, kernel...]")
      .input("Mask", "[batch, deformable_groups * kernel, height, width of Output]")
      .output("Output", "[batch, output channels, height, width]");
  return add_deformable_attrs(def).grad(
      {.type = "deformable_conv_grad",
       .inputs = {"Input", "Offset", "Filter", "Mask", "Output@GRAD"},
       .outputs = {"Input@GRAD", "Offset@GRAD", "Filter@GRAD", "Mask@GRAD"}});
}

OpDef deformable_conv_v1() {
  OpDef def("deformable_conv_v1");
  def.doc("two-dimensional convolution that reads every element of the kernel at its own position")
      .input("Input", "[batch, channels, height, width]")
      .input("Offset", "[batch, 2 * deformable_groups * kernel, height, width of Output]")
      .input("Filter", "[output channels, input channels / groups, kernel...]")
      .output("Output", "[batch, output channels, height, width]");
  return add_deformable_attrs(def).grad({.type = "deformable_conv_v1_grad",
                                         .inputs = {"Input", "Offset", "Filter", "Output@GRAD"},
                                         .outputs = {"Input@GRAD", "Offset@GRAD", "Filter@GRAD"}});
}

}  // namespace
}  // namespace deformable_conv_ops

void add_nn_deformable_conv(OpRegistry& registry) {
  using namespace deformable_conv_ops;
  registry.add(deformable_conv());
  registry.add(deformable_conv_v1());
}

}  // namespace millrace::ops
