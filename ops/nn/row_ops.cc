#include "ops/infer_helpers.h"
#include "ops/lod_offsets.h"
#include "ops/registry.h"

namespace millrace::ops {
namespace {

Status infer_row_conv(InferContext& ctx) {
  MILLRACE_RETURN_IF_ERROR(check_rank(ctx, "Filter", 2, 2));
  const VarMeta& x = ctx.input("X");
  const VarMeta& filter = ctx.input("Filter");
  if (x.has_shape && filter.has_shape && x.rank() > 0 &&
      !dims_agree(x.dims.back(), filter.dims[1])) {
    return ctx.error("Filter {} must have the columns of X {}", dims_text(filter.dims),
                     dims_text(x.dims));
  }
  return infer_unary(ctx);
}

Status infer_conv_shift(InferContext& ctx) {
  MILLRACE_RETURN_IF_ERROR(check_rank(ctx, "X", 2, 2));
  MILLRACE_RETURN_IF_ERROR(check_rank(ctx, "Y", 2, 2));
  const VarMeta& x = ctx.input("X");
  const VarMeta& y = ctx.input("Y");
  if (x.has_shape && y.has_shape && !dims_agree(x.dims[0], y.dims[0])) {
    return ctx.error("X {} and Y {} must have the same number of rows", dims_text(x.dims),
                     dims_text(y.dims));
  }
  if (y.has_shape && y.dims[1] >= 0 && y.dims[1] % 2 == 0) {
    return ctx.error("Y must have an odd number of columns, found {}", dims_text(y.dims));
  }
  return infer_unary(ctx);
}

Status infer_fsp(InferContext& ctx) {
  MILLRACE_RETURN_IF_ERROR(check_rank(ctx, "X", 4, 4));
  MILLRACE_RETURN_IF_ERROR(check_rank(ctx, "Y", 4, 4));
  const VarMeta x = ctx.input("X");
  const VarMeta y = ctx.input("Y");
  if (!x.has_shape || !y.has_shape) {
    ctx.set_output("Out", x.dtype, {-1, -1, -1});
    return Ok();
  }
  if (!dims_agree(x.dims[2], y.dims[2]) || !dims_agree(x.dims[3], y.dims[3])) {
    return ctx.error("X {} and Y {} must have the same height and width", dims_text(x.dims),
                     dims_text(y.dims));
  }
  ctx.set_output("Out", tensor_with_lod_of(x, x.dtype, {x.dims[0], x.dims[1], y.dims[1]}));
  return Ok();
}

Status infer_spectral_norm(InferContext& ctx) {
  const VarMeta& weight = ctx.input("Weight");
  if (weight.has_shape) {
    MILLRACE_RETURN_IF_ERROR(
        checked_axis(ctx, "dim", ctx.attr<int64_t>("dim"), weight.rank()).status());
  }
  ctx.copy("Weight", "Out");
  return Ok();
}

Status infer_tree_conv(InferContext& ctx) {
  MILLRACE_RETURN_IF_ERROR(check_rank(ctx, "NodesVector", 3, 3));
  MILLRACE_RETURN_IF_ERROR(check_rank(ctx, "EdgeSet", 3, 3));
  MILLRACE_RETURN_IF_ERROR(check_rank(ctx, "Filter", 4, 4));
  const VarMeta nodes = ctx.input("NodesVector");
  const VarMeta filter = ctx.input("Filter");
  if (nodes.has_shape && filter.has_shape && !dims_agree(nodes.dims[2], filter.dims[0])) {
    return ctx.error("Filter {} must have the {} features of NodesVector {}",
                     dims_text(filter.dims), nodes.dims[2], dims_text(nodes.dims));
  }
  Dims out(4, -1);
  if (nodes.has_shape) std::copy_n(nodes.dims.begin(), 2, out.begin());
  if (filter.has_shape) std::copy_n(filter.dims.begin() + 2, 2, out.begin() + 2);
  ctx.set_output("Out", nodes.dtype, out);
  return Ok();
}

// Two operations for each element of X and each row of the filter.
double row_conv_flops(const InferContext& ctx) {
  const VarMeta& filter = ctx.input("Filter");
  const double rows =
      filter.dims.empty() ? 1 : static_cast<double>(std::max<int64_t>(filter.dims[0], 1));
  return 2 * rows * element_count(ctx.input("X"));
}

}  // namespace

/// add_position_encoding, row_conv, conv_shift, fsp, spectral_norm, tree_conv
void add_nn_row_ops(OpRegistry& registry) {
  registry.add(OpDef("add_position_encoding")
                   .doc("alpha * X + beta * sines and cosines of the position")
                   .input("X", "[batch, steps, features], or rows with LoD")
                   .output("Out", "shape, dtype and LoD of X")
                   .attr("alpha", 1.0F, "factor of X")
                   .attr("beta", 1.0F, "factor of the encoding")
                   .infer(infer_unary)
                   .grad({.type = "add_position_encoding_grad",
                          .inputs = {"Out@GRAD"},
                          .outputs = {"X@GRAD"},
                          .shape_like = {{"X@GRAD", "Out@GRAD"}}}));
  registry.add(OpDef("row_conv")
                   .doc("every row plus the weighted rows that follow it in its sequence")
                   .input("X", "rows with LoD, or [batch, steps, features]")
                   .input("Filter", "[rows ahead + 1, features]")
                   .output("Out", "shape, dtype and LoD of X")
                   .infer(infer_row_conv)
                   .flops(row_conv_flops)
                   .grad({.type = "row_conv_grad",
                          .inputs = {"X", "Filter", "Out@GRAD"},
                          .outputs = {"X@GRAD", "Filter@GRAD"},
                          .drops_lod = true}));
  registry.add(OpDef("conv_shift")
                   .doc("circular correlation of the rows of X with those of Y")
                   .input("X", "a matrix")
                   .input("Y", "rows of X, an odd number of columns")
                   .output("Out", "shape, dtype and LoD of X")
                   .infer(infer_conv_shift)
                   .grad({.type = "conv_shift_grad",
                          .inputs = {"X", "Y", "Out@GRAD"},
                          .outputs = {"X@GRAD", "Y@GRAD"}}));
  registry.add(OpDef("fsp")
                   .doc("mean over the pixels of the product of each channel of X with each of Y")
                   .input("X", "[batch, channels, height, width]")
                   .input("Y", "batch, height and width of X")
                   .output("Out", "[batch, channels of X, channels of Y]")
                   .infer(infer_fsp)
                   .grad({.type = "fsp_grad",
                          .inputs = {"X", "Y", "Out@GRAD"},
                          .outputs = {"X@GRAD", "Y@GRAD"},
                          .infer = infer_grad_without_offsets}));
  registry.add(OpDef("spectral_norm")
                   .doc("Weight divided by its largest singular value, found by power iteration")
                   .input("Weight", "rank 2 to 5, seen as a matrix with dim in front")
                   .input("U", "[rows], start of the iteration")
                   .input("V", "[columns], start of the iteration")
                   .output("Out", "shape and dtype of Weight")
                   .attr("dim", 0, "dim of the matrix's rows")
                   .attr("power_iters", 1, "number of iterations")
                   .range(0)
                   .attr("eps", 1e-12F, "added to norms before dividing")
                   .range(0)
                   .infer(infer_spectral_norm)
                   .grad({.type = "spectral_norm_grad",
                          .inputs = {"Weight", "U", "V", "Out@GRAD"},
                          .outputs = {"Weight@GRAD"}}));
  registry.add(OpDef("tree_conv")
                   .doc("convolution over the neighbours of every node of a tree")
                   .input("NodesVector", "[batch, nodes, features]")
                   .input("EdgeSet", "int32 [batch, edges, 2], parent and child, from 1")
                   .input("Filter", "[features, 3, output size, filters]")
                   .output("Out", "[batch, nodes, output size, filters]")
                   .attr("max_depth", 2, "how far the neighbours may be away")
                   .range(1)
                   .infer(infer_tree_conv)
                   .grad({.type = "tree_conv_grad",
                          .inputs = {"NodesVector", "EdgeSet", "Filter", "Out@GRAD"},
                          .outputs = {"NodesVector@GRAD", "Filter@GRAD"}}));
}

}  // namespace millrace::ops
