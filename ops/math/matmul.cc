#include "ops/lod_offsets.h"
#include "ops/math/matrix_dims.h"
#include "ops/registry.h"

namespace millrace::ops {
namespace matmul_ops {
namespace {

bool both_known(const InferContext& ctx) {
  return dims_known(ctx.input("X")) && dims_known(ctx.input("Y"));
}

// With several heads, the columns of X are divided among the heads. The rows of Y are either
// divided as well, or there are only as many rows as a head has columns, and the columns of Y are
// divided.
Status check_heads(const InferContext& ctx, const MatrixDims& a, const MatrixDims& b,
                   int32_t heads) {
  if (a.cols < 0 || b.rows < 0) return Ok();
  const bool whole = a.cols == b.rows;
  const bool parts = a.cols == b.rows * heads && (b.cols < 0 || b.cols % heads == 0);
  if (a.cols % heads == 0 && (whole || parts)) return Ok();
  return ctx.error("{} heads of X {} do not fit Y {}", heads, dims_text(ctx.input("X").dims),
                   dims_text(ctx.input("Y").dims));
}

// Fluid 1.x: the result drops the dim of a vector operand only if that dim has size 1, so the
// product of a column vector and a row vector is a matrix.
Status infer(InferContext& ctx) {
  const VarMeta& x = ctx.input("X");
  const VarMeta& y = ctx.input("Y");
  if (!both_known(ctx)) {
    ctx.set_output("Out", shapeless_meta(x.dtype));
    return Ok();
  }
  const MatrixDims a = left_matrix(x.dims, ctx.attr<bool>("transpose_X"));
  const MatrixDims b = right_matrix(y.dims, ctx.attr<bool>("transpose_Y"));
  const int32_t heads = ctx.attr<int32_t>("head_number");
  MILLRACE_RETURN_IF_ERROR(heads > 1 ? check_heads(ctx, a, b, heads) : check_inner(ctx, a, b));
  MILLRACE_ASSIGN_OR_RETURN(Dims dims, product_batch(ctx, a, b));
  const bool drops_row = x.rank() <= 1 && a.rows == 1;
  const bool drops_col = y.rank() <= 1 && b.cols == 1;
  if (!drops_row) dims.push_back(a.rows);
  // the results of the heads are concatenated by columns
  const bool whole = heads > 1 && b.cols >= 0 && dims_agree(a.cols, b.rows);
  if (!drops_col) dims.push_back(whole ? b.cols * heads : b.cols);
  ctx.set_output("Out", tensor_with_lod_of(x, x.dtype, dims));
  return Ok();
}

double flops(const InferContext& ctx) {
  if (!both_known(ctx)) return 1;
  return product_flops(ctx, left_matrix(ctx.input("X").dims, ctx.attr<bool>("transpose_X")),
                       right_matrix(ctx.input("Y").dims, ctx.attr<bool>("transpose_Y")));
}

// Newer form: vectors are never transposed, and the result always drops their dim.
Status infer_v2(InferContext& ctx) {
  const VarMeta& x = ctx.input("X");
  const VarMeta& y = ctx.input("Y");
  if (!both_known(ctx)) {
    ctx.set_output("Out", shapeless_meta(x.dtype));
    return Ok();
  }
  if (x.dims.empty() || y.dims.empty()) {
    return ctx.error("X and Y must have a rank of at least 1, found {} and {}", dims_text(x.dims),
                     dims_text(y.dims));
  }
  const MatrixDims a = left_matrix(x.dims, ctx.attr<bool>("trans_x") && x.rank() > 1);
  const MatrixDims b = right_matrix(y.dims, ctx.attr<bool>("trans_y") && y.rank() > 1);
  MILLRACE_RETURN_IF_ERROR(check_inner(ctx, a, b));
  MILLRACE_ASSIGN_OR_RETURN(Dims dims, product_batch(ctx, a, b));
  if (x.rank() > 1) dims.push_back(a.rows);
  if (y.rank() > 1) dims.push_back(b.cols);
  ctx.set_output("Out", without_offsets(tensor_with_lod_of(x, x.dtype, dims)));
  return Ok();
}

// If the gradient of one operand is a sum over a batch dim, the gradient of the other one has no
// LoD: the original then moves it there from a temporary tensor.
Status infer_v2_grad(InferContext& ctx) {
  const VarMeta x = ctx.input("X");
  const VarMeta y = ctx.input("Y");
  bool sums_x = false;
  bool sums_y = false;
  const bool batches = x.rank() == y.rank() && x.rank() > 2;
  for (size_t i = 0; batches && i + 2 < x.rank(); ++i) {
    sums_x |= x.dims[i] < y.dims[i];
    sums_y |= y.dims[i] < x.dims[i];
  }
  ctx.set_output("X@GRAD", sums_y && !sums_x ? without_offsets(x) : x);
  ctx.set_output("Y@GRAD", sums_x && !sums_y ? without_offsets(y) : y);
  return Ok();
}

double flops_v2(const InferContext& ctx) {
  if (!both_known(ctx)) return 1;
  const VarMeta& x = ctx.input("X");
  const VarMeta& y = ctx.input("Y");
  return product_flops(ctx, left_matrix(x.dims, ctx.attr<bool>("trans_x") && x.rank() > 1),
                       right_matrix(y.dims, ctx.attr<bool>("trans_y") && y.rank() > 1));
}

OpDef matmul() {
  return OpDef("matmul")
      .doc("alpha times the product of the last two dims, batched over the others (fluid 1.x)")
      .input("X", "rank >= 1; a vector is a row")
      .input("Y", "rank >= 1; a vector is a column")
      .output("Out", "batch dims, rows of X, columns of Y")
      .attr("transpose_X", false, "swap the last two dims of X first")
      .attr("transpose_Y", false, "swap the last two dims of Y first")
      .attr("alpha", 1.0F, "factor of the result")
      .attr("head_number", 1, "groups of columns that are multiplied separately")
      .range(1)
      .infer(infer)
      .grad({.type = "matmul_grad",
             .inputs = {"Out@GRAD", "X", "Y"},
             .outputs = {"X@GRAD", "Y@GRAD"},
             .infer = infer_grad_without_offsets})
      .flops(flops);
}

OpDef matmul_v2() {
  return OpDef("matmul_v2")
      .doc("product of the last two dims, batched and broadcast over the others")
      .input("X", "rank >= 1; a vector is a row whose dim is dropped from Out")
      .input("Y", "rank >= 1; a vector is a column whose dim is dropped from Out")
      .output("Out", "batch dims, rows of X, columns of Y")
      .attr("trans_x", false, "swap the last two dims of X first")
      .attr("trans_y", false, "swap the last two dims of Y first")
      .infer(infer_v2)
      .grad({.type = "matmul_v2_grad",
             .inputs = {"Out@GRAD", "X", "Y"},
             .outputs = {"X@GRAD", "Y@GRAD"},
             .infer = infer_v2_grad})
      .flops(flops_v2);
}

}  // namespace
}  // namespace matmul_ops

void add_math_matmul(OpRegistry& registry) {
  using namespace matmul_ops;
  registry.add(matmul());
  registry.add(matmul_v2());
}

}  // namespace millrace::ops
