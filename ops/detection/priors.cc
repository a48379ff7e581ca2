#include <cmath>

#include "ops/infer_helpers.h"
#include "ops/registry.h"

namespace millrace::ops {
namespace {

// Boxes and variances for each cell of a feature map: [height, width, count, 4].
Dims box_grid(const VarMeta& input, int64_t count) {
  Dims dims = {-1, -1, count, 4};
  if (input.has_shape) {
    dims[0] = input.dims[2];
    dims[1] = input.dims[3];
  }
  return dims;
}

void set_boxes(InferContext& ctx, llvm::StringRef boxes, llvm::ArrayRef<int64_t> dims) {
  const DType dtype = ctx.input("Input").dtype;
  ctx.set_output(boxes, dtype, dims);
  ctx.set_output("Variances", dtype, dims);
}

Status check_variances(const InferContext& ctx) {
  const size_t found = ctx.attr<std::vector<float>>("variances").size();
  if (found == 4) return Ok();
  return ctx.error("attribute 'variances' must have 4 entries, found {}", found);
}

// The distinct ratios: 1, then the given ones, each followed by its inverse if flip is set.
int64_t count_ratios(const std::vector<float>& given, bool flip) {
  std::vector<float> ratios = {1.0F};
  for (const float ratio : given) {
    bool known = false;
    for (const float other : ratios) known = known || std::fabs(ratio - other) < 1e-6F;
    if (known) continue;
    ratios.push_back(ratio);
    if (flip) ratios.push_back(1.0F / ratio);
  }
  return static_cast<int64_t>(ratios.size());
}

Status infer_prior_box(InferContext& ctx) {
  MILLRACE_RETURN_IF_ERROR(check_rank(ctx, "Input", 4, 4));
  MILLRACE_RETURN_IF_ERROR(check_rank(ctx, "Image", 4, 4));
  const auto smallest = ctx.attr<std::vector<float>>("min_sizes");
  const auto largest = ctx.attr<std::vector<float>>("max_sizes");
  if (!largest.empty() && largest.size() != smallest.size()) {
    return ctx.error(
        "attribute 'max_sizes' must have as many entries as 'min_sizes' ({}), found {}",
        smallest.size(), largest.size());
  }
  const int64_t ratios =
      count_ratios(ctx.attr<std::vector<float>>("aspect_ratios"), ctx.attr<bool>("flip"));
  const int64_t count =
      ratios * static_cast<int64_t>(smallest.size()) + static_cast<int64_t>(largest.size());
  set_boxes(ctx, "Boxes", box_grid(ctx.input("Input"), count));
  return Ok();
}

Status infer_density_prior_box(InferContext& ctx) {
  MILLRACE_RETURN_IF_ERROR(check_rank(ctx, "Input", 4, 4));
  MILLRACE_RETURN_IF_ERROR(check_rank(ctx, "Image", 4, 4));
  const auto densities = ctx.attr<std::vector<int32_t>>("densities");
  const auto sizes = ctx.attr<std::vector<float>>("fixed_sizes");
  if (densities.size() != sizes.size()) {
    return ctx.error(
        "attributes 'densities' and 'fixed_sizes' must have the same length, found {} and "
        "{}",
        densities.size(), sizes.size());
  }
  int64_t count = 0;
  for (const int64_t density : densities) count += density * density;
  const auto ratios = static_cast<int64_t>(ctx.attr<std::vector<float>>("fixed_ratios").size());
  count = dims_product({count, ratios});
  Dims dims = box_grid(ctx.input("Input"), count);
  if (ctx.attr<bool>("flatten_to_2d"))
    dims = {dims_product(llvm::ArrayRef<int64_t>(dims).take_front(3)), 4};
  set_boxes(ctx, "Boxes", dims);
  return Ok();
}

Status infer_anchor_generator(InferContext& ctx) {
  MILLRACE_RETURN_IF_ERROR(check_rank(ctx, "Input", 4, 4));
  MILLRACE_RETURN_IF_ERROR(check_variances(ctx));
  const size_t count = ctx.attr<std::vector<float>>("anchor_sizes").size() *
                       ctx.attr<std::vector<float>>("aspect_ratios").size();
  set_boxes(ctx, "Anchors", box_grid(ctx.input("Input"), static_cast<int64_t>(count)));
  return Ok();
}

OpDef prior_family(llvm::StringRef type) {
  OpDef def(type);
  def.input("Input", "feature map [batch, channels, height, width]; its data is not read")
      .input("Image", "[batch, channels, height, width]; its data is not read")
      .output("Boxes", "[height, width, boxes, 4], relative to the image size")
      .output("Variances", "shape of Boxes")
      .attr("clip", true, "clip boxes to the image")
      .attr("step_w", 0.0F, "width of a cell in pixels; 0: image / feature map")
      .range(0)
      .attr("step_h", 0.0F, "height of a cell in pixels; 0: image / feature map")
      .range(0)
      .attr("offset", 0.5F, "position of the box centre in its cell, in cells");
  return def;
}

}  // namespace

/// prior_box, density_prior_box, anchor_generator
void add_detection_priors(OpRegistry& registry) {
  const std::vector<float> variances = {0.1F, 0.1F, 0.2F, 0.2F};
  registry.add(prior_family("prior_box")
                   .doc("boxes of several sizes and shapes around each cell of a feature map")
                   .required_attr<std::vector<float>>("min_sizes", "small box, in pixels")
                   .attr("max_sizes", std::vector<float>{}, "large box, in pixels")
                   .attr("aspect_ratios", std::vector<float>{}, "width / height; 1 is implied")
                   .attr("variances", variances, "copied to every box")
                   .attr("flip", true, "also the inverse of each ratio")
                   .attr("min_max_aspect_ratios_order", false,
                         "true: order of boxes small, large, ratios; false: small, ratios, large")
                   .infer(infer_prior_box));
  registry.add(prior_family("density_prior_box")
                   .doc("boxes spread evenly over each cell of a feature map")
                   .attr("variances", variances, "copied to every box")
                   .attr("flatten_to_2d", false, "Boxes is [all, 4]")
                   .attr("fixed_sizes", std::vector<float>{}, "sizes in pixels")
                   .attr("fixed_ratios", std::vector<float>{}, "width / height")
                   .attr("densities", std::vector<int32_t>{}, "boxes along each side, by size")
                   .range(1)
                   .infer(infer_density_prior_box));
  registry.add(OpDef("anchor_generator")
                   .doc("boxes of several sizes and shapes around each cell of a feature map")
                   .input("Input", "feature map [batch, channels, height, width]; data not read")
                   .output("Anchors", "[height, width, boxes, 4], in pixels")
                   .output("Variances", "shape of Anchors")
                   .required_attr<std::vector<float>>("anchor_sizes", "in pixels")
                   .required_attr<std::vector<float>>("aspect_ratios", "height / width")
                   .required_attr<std::vector<float>>("variances", "copied to every box")
                   .attr("stride", std::vector<float>{16.0F, 16.0F}, "size of a cell in pixels")
                   .attr("offset", 0.5F, "position of the box centre in its cell, in cells")
                   .infer(infer_anchor_generator));
}

}  // namespace millrace::ops
