#include "ops/infer_helpers.h"
#include "ops/registry.h"

namespace millrace::ops {
namespace roi {
namespace {

// [regions, channels, pooled_height, pooled_width].
StatusOr<Dims> pooled_dims(const InferContext& ctx, int64_t channels) {
  MILLRACE_RETURN_IF_ERROR(check_rank(ctx, "X", 4, 4));
  MILLRACE_RETURN_IF_ERROR(check_rank(ctx, "ROIs", 2, 2));
  const VarMeta& rois = ctx.input("ROIs");
  if (rois.has_shape && !dims_agree(rois.dims[1], 4))
    return ctx.error("ROIs must be [regions, 4], found {}", dims_text(rois.dims));
  return Dims{rois.has_shape ? rois.dims[0] : -1, channels, ctx.attr<int64_t>("pooled_height"),
              ctx.attr<int64_t>("pooled_width")};
}

Status infer_channels(InferContext& ctx) {
  const VarMeta x = ctx.input("X");
  const int64_t channels = x.has_shape && x.rank() > 1 ? x.dims[1] : -1;
  MILLRACE_ASSIGN_OR_RETURN(const Dims dims, pooled_dims(ctx, channels));
  ctx.set_output("Out", x.dtype, dims);
  ctx.set_output("Argmax", DType::kInt64, dims);
  return Ok();
}

// Every output channel has a separate input channel for each cell of the pooled image.
Status infer_psroi(InferContext& ctx) {
  const VarMeta x = ctx.input("X");
  const auto channels = ctx.attr<int64_t>("output_channels");
  const int64_t wanted = dims_product(
      {channels, ctx.attr<int64_t>("pooled_height"), ctx.attr<int64_t>("pooled_width")});
  MILLRACE_ASSIGN_OR_RETURN(const Dims dims, pooled_dims(ctx, channels));
  if (x.has_shape && !dims_agree(x.dims[1], wanted)) {
    return ctx.error(
        "X must have {} channels, attributes 'output_channels' * 'pooled_height' * "
        "'pooled_width', found {}",
        wanted, dims_text(x.dims));
  }
  ctx.set_output("Out", x.dtype, dims);
  return Ok();
}

OpDef family(llvm::StringRef type, llvm::StringRef doc) {
  OpDef def(type);
  def.doc(doc)
      .input("X", "[batch, channels, height, width]")
      .input("ROIs", "[regions, 4]: left, top, right, bottom; LoD determines the image")
      .output("Out", "[regions, channels, pooled_height, pooled_width]")
      .attr("pooled_height", 1, "cells in a column")
      .range(1)
      .attr("pooled_width", 1, "cells in a row")
      .range(1)
      .attr("spatial_scale", 1.0F, "size of X / size of the image that ROIs refers to");
  return def;
}

OpDef& counted(OpDef& def) {
  return def.input("RoisNum", "[batch], regions of each image; replaces LoD", Arity::kOptional);
}

}  // namespace
}  // namespace roi

/// roi_align, roi_pool, psroi_pool, prroi_pool
void add_vision_roi(OpRegistry& registry) {
  using namespace roi;
  OpDef align = family("roi_align", "average of points read between pixels, in each cell");
  registry.add(counted(align)
                   .attr("sampling_ratio", -1, "points along each side of a cell; -1: by its size")
                   .attr("aligned", false, "shift regions by half a pixel")
                   .infer(infer_channels)
                   .grad({.type = "roi_align_grad",
                          .inputs = {"X", "ROIs", "RoisNum", "Out@GRAD"},
                          .outputs = {"X@GRAD"}}));
  OpDef pool = family("roi_pool", "largest pixel of each cell of each region");
  registry.add(counted(pool)
                   .intermediate("Argmax", "int64, shape of Out; index of the pixel")
                   .infer(infer_channels)
                   .grad({.type = "roi_pool_grad",
                          .inputs = {"X", "ROIs", "RoisNum", "Argmax", "Out@GRAD"},
                          .outputs = {"X@GRAD"}}));
  OpDef psroi = family("psroi_pool", "average of each cell, every cell from separate channels");
  registry.add(counted(psroi)
                   .attr("output_channels", 1, "channels of Out")
                   .range(1)
                   .infer(infer_psroi)
                   .grad({.type = "psroi_pool_grad",
                          .inputs = {"X", "ROIs", "RoisNum", "Out@GRAD"},
                          .outputs = {"X@GRAD"}}));
  registry.add(
      family("prroi_pool", "exact integral of the interpolated image over each cell")
          .input("BatchRoINums", "[batch], regions of each image; replaces LoD", Arity::kOptional)
          .infer(infer_channels)
          .grad({.type = "prroi_pool_grad",
                 .inputs = {"X", "Out", "ROIs", "BatchRoINums", "Out@GRAD"},
                 .outputs = {"X@GRAD", "ROIs@GRAD"}}));
}

}  // namespace millrace::ops
