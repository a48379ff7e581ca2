#include "ops/infer_helpers.h"
#include "ops/lod_offsets.h"
#include "ops/registry.h"

namespace millrace::ops {
namespace {

// A grid has, for every pixel of the result, a point of the input with one coordinate per spatial
// dim.
Status infer_affine_grid(InferContext& ctx) {
  MILLRACE_RETURN_IF_ERROR(check_rank(ctx, "Theta", 3, 3));
  const VarMeta theta = ctx.input("Theta");
  int64_t spatial = -1;
  if (theta.has_shape) {
    const bool plane = dims_agree(theta.dims[1], 2) && dims_agree(theta.dims[2], 3);
    const bool space = dims_agree(theta.dims[1], 3) && dims_agree(theta.dims[2], 4);
    if (!plane && !space) {
      return ctx.error("Theta must be [batch, 2, 3] or [batch, 3, 4], found {}",
                       dims_text(theta.dims));
    }
    if (plane != space) spatial = plane ? 2 : 3;
  }
  const auto shape = ctx.attr<std::vector<int64_t>>("output_shape");
  const bool dynamic = ctx.has_input("OutputShape");
  if (!dynamic && spatial > 0 && shape.size() != static_cast<size_t>(spatial) + 2) {
    return ctx.error("attribute 'output_shape' must have {} entries for Theta {}, found {}",
                     spatial + 2, dims_text(theta.dims), shape.size());
  }
  if (spatial < 0 && dynamic) {
    ctx.set_output("Output", with_offsets_of(shapeless_meta(theta.dtype), theta));
    return Ok();
  }
  if (spatial < 0) spatial = static_cast<int64_t>(shape.size()) - 2;
  Dims dims(static_cast<size_t>(spatial) + 2, -1);
  if (theta.has_shape) dims[0] = theta.dims[0];
  for (size_t i = 0; !dynamic && i < static_cast<size_t>(spatial); ++i) dims[1 + i] = shape[2 + i];
  dims.back() = spatial;
  ctx.set_output("Output", with_offsets_of(tensor_meta(theta.dtype, dims), theta));
  return Ok();
}

Status infer_grid_sampler(InferContext& ctx) {
  MILLRACE_RETURN_IF_ERROR(check_rank(ctx, "X", 4, 5));
  const VarMeta x = ctx.input("X");
  const VarMeta grid = ctx.input("Grid");
  if (!x.has_shape || !grid.has_shape) {
    ctx.set_output("Output", shapeless_meta(x.dtype));
    return Ok();
  }
  const auto spatial = static_cast<int64_t>(x.rank()) - 2;
  if (grid.rank() != x.rank() || !dims_agree(grid.dims.back(), spatial) ||
      !dims_agree(grid.dims[0], x.dims[0])) {
    return ctx.error("Grid must have the rank and batch of X {} and {} coordinates, found {}",
                     dims_text(x.dims), spatial, dims_text(grid.dims));
  }
  Dims dims = x.dims;
  std::copy(grid.dims.begin() + 1, grid.dims.end() - 1, dims.begin() + 2);
  ctx.set_output("Output", tensor_with_lod_of(x, x.dtype, dims));
  return Ok();
}

}  // namespace

/// affine_grid, grid_sampler
void add_vision_grid(OpRegistry& registry) {
  registry.add(OpDef("affine_grid")
                   .doc("the points to which an affine map moves the pixels of an image")
                   .input("Theta", "[batch, 2, 3] or [batch, 3, 4], the maps")
                   .input("OutputShape", "int32, shape of the image; replaces the attribute",
                          Arity::kOptional)
                   .output("Output", "[batch, height, width, 2] or [batch, depth, ..., 3]")
                   .attr("output_shape", std::vector<int32_t>{}, "shape of the image")
                   .attr("align_corners", true, "-1 and 1 are the middles of the corner pixels")
                   .infer(infer_affine_grid)
                   .grad({.type = "affine_grid_grad",
                          .inputs = {"Theta", "OutputShape", "Output@GRAD"},
                          .outputs = {"Theta@GRAD"},
                          .infer = infer_grad_without_offsets}));
  registry.add(OpDef("grid_sampler")
                   .doc("the image at the points of a grid")
                   .input("X", "[batch, channels, height, width], or with a depth")
                   .input("Grid", "[batch, out height, out width, 2], or with a depth and 3")
                   .output("Output", "[batch, channels, out height, out width]")
                   .attr("mode", "bilinear", "how values between pixels are found")
                   .one_of({"bilinear", "nearest"})
                   .attr("padding_mode", "zeros", "how points outside of the image are read")
                   .one_of({"zeros", "border", "reflection"})
                   .attr("align_corners", true, "-1 and 1 are the middles of the corner pixels")
                   .infer(infer_grid_sampler)
                   .grad({.type = "grid_sampler_grad",
                          .inputs = {"X", "Grid", "Output@GRAD"},
                          .outputs = {"X@GRAD", "Grid@GRAD"}}));
}

}  // namespace millrace::ops
