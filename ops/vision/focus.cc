#include "ops/infer_helpers.h"
#include "ops/lod_offsets.h"
#include "ops/registry.h"

// similarity_focus and bilateral_slice.
namespace millrace::ops {
namespace {

Status infer_similarity_focus(InferContext& ctx) {
  MILLRACE_RETURN_IF_ERROR(check_rank(ctx, "X", 4, 4));
  const VarMeta& x = ctx.input("X");
  const auto axis = static_cast<size_t>(ctx.attr<int32_t>("axis"));
  const auto indexes = ctx.attr<std::vector<int32_t>>("indexes");
  if (indexes.empty())
    return ctx.error("attribute 'indexes' is empty, expected at least one index");
  for (const int32_t index : indexes) {
    if (dims_known(x) && axis < 4 && x.dims[axis] >= 0 && index >= x.dims[axis]) {
      return ctx.error("attribute 'indexes' has {}, expected less than dim {} of X {}", index, axis,
                       dims_text(x.dims));
    }
  }
  ctx.set_output("Out", x);
  return Ok();
}

Status infer_bilateral_slice(InferContext& ctx) {
  MILLRACE_RETURN_IF_ERROR(check_rank(ctx, "X", 4, 4));
  MILLRACE_RETURN_IF_ERROR(check_rank(ctx, "Grid", 5, 5));
  MILLRACE_RETURN_IF_ERROR(check_rank(ctx, "Guide", 3, 3));
  const VarMeta& x = ctx.input("X");
  const VarMeta& grid = ctx.input("Grid");
  Dims dims{-1, -1, -1, -1};
  if (dims_known(x)) dims = x.dims;
  dims[1] = -1;
  if (dims_known(x) && dims_known(grid) && x.dims[1] >= 0 && grid.dims[1] >= 0) {
    const int64_t factors = x.dims[1] + (ctx.attr<bool>("has_offset") ? 1 : 0);
    if (factors == 0 || grid.dims[1] % factors != 0) {
      return ctx.error("Grid {} must have a multiple of {} channels for X {}", dims_text(grid.dims),
                       factors, dims_text(x.dims));
    }
    dims[1] = grid.dims[1] / factors;
  }
  ctx.set_output("Out", x.dtype, dims);
  return Ok();
}

}  // namespace

/// similarity_focus, bilateral_slice
void add_vision_focus(OpRegistry& registry) {
  registry.add(OpDef("similarity_focus")
                   .doc("1 at the largest elements of a slice of X, one for each row and "
                        "column, else 0")
                   .input("X", "[batch, a, b, c]")
                   .output("Out", "shape of X; alike in all slices")
                   .required_attr<int32_t>("axis", "dim that is sliced")
                   .range(1, 3)
                   .required_attr<std::vector<int32_t>>("indexes", "slices to search")
                   .range(0)
                   .infer(infer_similarity_focus));
  registry.add(
      OpDef("bilateral_slice")
          .doc("affine maps of the channels of each pixel, looked up in a grid by position "
               "and guide")
          .input("X", "[batch, channels, height, width]")
          .input("Grid", "[batch, out channels * factors, depth, rows, columns]")
          .input("Guide", "[batch, height, width], 0 to 1: position along the depth")
          .output("Out", "[batch, out channels, height, width]")
          .attr("has_offset", false, "the maps have a constant as well")
          .infer(infer_bilateral_slice)
          .grad({.type = "bilateral_slice_grad",
                 .inputs = {"X", "Grid", "Guide", "Out@GRAD"},
                 .outputs = {"X@GRAD", "Grid@GRAD", "Guide@GRAD"}}));
}

}  // namespace millrace::ops
