#include "ops/infer_helpers.h"
#include "ops/registry.h"

// Regions that are not axis-aligned boxes, or whose cells are moved.
namespace millrace::ops {
namespace {

Status check_rois(const InferContext& ctx, int64_t columns) {
  MILLRACE_RETURN_IF_ERROR(check_rank(ctx, "ROIs", 2, 2));
  const VarMeta& rois = ctx.input("ROIs");
  if (!rois.has_shape || dims_agree(rois.dims[1], columns)) return Ok();
  return ctx.error("ROIs must be [regions, {}], found {}", columns, dims_text(rois.dims));
}

int64_t regions_of(const InferContext& ctx) {
  const VarMeta& rois = ctx.input("ROIs");
  return rois.has_shape && rois.rank() == 2 ? rois.dims[0] : -1;
}

// Checks that an attribute has two numbers, both at least 1.
StatusOr<std::vector<int64_t>> pair_attr(const InferContext& ctx, llvm::StringRef name) {
  auto pair = ctx.attr<std::vector<int64_t>>(name);
  if (pair.size() == 2 && pair[0] > 0 && pair[1] > 0) return pair;
  return ctx.error("attribute '{}' must be a height and a width of at least 1, found {}",
                   std::string_view(name.data(), name.size()), dims_text(pair));
}

Status infer_deformable_psroi(InferContext& ctx) {
  MILLRACE_RETURN_IF_ERROR(check_rank(ctx, "Input", 4, 4));
  MILLRACE_RETURN_IF_ERROR(check_rank(ctx, "Trans", 4, 4));
  MILLRACE_RETURN_IF_ERROR(check_rois(ctx, 4));
  MILLRACE_ASSIGN_OR_RETURN(const std::vector<int64_t> group, pair_attr(ctx, "group_size"));
  MILLRACE_ASSIGN_OR_RETURN(const std::vector<int64_t> part, pair_attr(ctx, "part_size"));
  const VarMeta input = ctx.input("Input");
  const int64_t channels = ctx.attr<int32_t>("output_dim");
  const int64_t wanted = dims_product({channels, group[0], group[1]});
  if (input.has_shape && !dims_agree(input.dims[1], wanted)) {
    return ctx.error(
        "Input must have {} channels, attribute 'output_dim' times 'group_size', found {}", wanted,
        dims_text(input.dims));
  }
  const Dims dims = {regions_of(ctx), channels, ctx.attr<int32_t>("pooled_height"),
                     ctx.attr<int32_t>("pooled_width")};
  VarMeta out = tensor_meta(input.dtype, dims);
  ctx.set_output("Output", out);
  ctx.set_output("TopCount", std::move(out));
  return Ok();
}

Status infer_perspective(InferContext& ctx) {
  MILLRACE_RETURN_IF_ERROR(check_rank(ctx, "X", 4, 4));
  MILLRACE_RETURN_IF_ERROR(check_rois(ctx, 8));
  const VarMeta x = ctx.input("X");
  const int64_t regions = regions_of(ctx);
  const int64_t height = ctx.attr<int32_t>("transformed_height");
  const int64_t width = ctx.attr<int32_t>("transformed_width");
  const int64_t channels = x.has_shape ? x.dims[1] : -1;
  ctx.set_output("Out", x.dtype, {regions, channels, height, width});
  ctx.set_output("Mask", DType::kInt32, {regions, 1, height, width});
  ctx.set_output("TransformMatrix", x.dtype, {regions, 9});
  const Dims of_points = {regions, dims_product({height, width}), 4};
  ctx.set_output("Out2InIdx", DType::kInt32, of_points);
  ctx.set_output("Out2InWeights", x.dtype, of_points);
  return Ok();
}

}  // namespace

/// deformable_psroi_pooling, roi_perspective_transform
void add_vision_warped_roi(OpRegistry& registry) {
  registry.add(
      OpDef("deformable_psroi_pooling")
          .doc("average of points in each cell; every cell has separate channels and is moved")
          .input("Input", "[batch, output_dim * group_size, height, width]")
          .input("ROIs", "[regions, 4]: left, top, right, bottom; LoD determines the image")
          .input("Trans", "[regions, 2 * parts, part_size...]: columns, rows by which cells move")
          .intermediate("TopCount", "shape of Output; points of each cell inside the image")
          .output("Output", "[regions, output_dim, pooled_height, pooled_width]")
          .required_attr<bool>("no_trans", "cells do not move")
          .required_attr<float>("spatial_scale",
                                "size of Input / size of the image that ROIs refers to")
          .required_attr<int32_t>("output_dim", "channels of Output")
          .range(1, 1 << 24)
          .required_attr<std::vector<int32_t>>("group_size",
                                               "groups of channels along height, width")
          .required_attr<int32_t>("pooled_height", "cells in a column")
          .range(1, 1 << 24)
          .required_attr<int32_t>("pooled_width", "cells in a row")
          .range(1, 1 << 24)
          .required_attr<std::vector<int32_t>>("part_size", "height and width of Trans")
          .required_attr<int32_t>("sample_per_part", "points along each side of a cell")
          .range(1, 1 << 12)
          .required_attr<float>("trans_std", "share of the region that 1 in Trans moves a cell by")
          .infer(infer_deformable_psroi)
          .grad({.type = "deformable_psroi_pooling_grad",
                 .inputs = {"Input", "ROIs", "Trans", "TopCount", "Output@GRAD"},
                 .outputs = {"Input@GRAD", "Trans@GRAD"}}));
  registry.add(
      OpDef("roi_perspective_transform")
          .doc("quadrangles of an image, straightened")
          .input("X", "[batch, channels, height, width]")
          .input("ROIs",
                 "[regions, 8]: corners from top left on, clockwise; LoD determines the image")
          .output("Out", "[regions, channels, transformed_height, transformed_width]")
          .output("Mask", "int32 [regions, 1, height, width of Out]; 1 inside of the quadrangle",
                  Arity::kOptional)
          .output("TransformMatrix", "[regions, 9]; from Out to X", Arity::kOptional)
          .intermediate("Out2InIdx", "int32 [regions, pixels, 4]; the pixels of X around a point")
          .intermediate("Out2InWeights", "[regions, pixels, 4]; how much each of them counts")
          .attr("spatial_scale", 1.0F, "size of X / size of the image that ROIs refers to")
          .attr("transformed_height", 1, "height of Out")
          .range(1, 1 << 24)
          .attr("transformed_width", 1, "width of Out")
          .range(1, 1 << 24)
          .infer(infer_perspective)
          .grad({.type = "roi_perspective_transform_grad",
                 .inputs = {"X", "ROIs", "Out@GRAD"},
                 .outputs = {"X@GRAD"}}));
}

}  // namespace millrace::ops
