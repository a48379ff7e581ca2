#include <algorithm>
#include <cstdlib>

#include "ops/infer_helpers.h"
#include "ops/lod_offsets.h"
#include "ops/registry.h"
#include "ops/tensor/helpers.h"

namespace millrace::ops {
namespace {

Status infer_diag(InferContext& ctx) {
  MILLRACE_RETURN_IF_ERROR(check_rank(ctx, "Diagonal", 1, 1));
  const VarMeta diagonal = ctx.input("Diagonal");
  const int64_t size = diagonal.has_shape ? diagonal.dims[0] : -1;
  ctx.set_output("Out", diagonal.dtype, {size, size});
  return Ok();
}

// A vector becomes a diagonal matrix; of a matrix, the diagonal is returned.
Status infer_diag_v2(InferContext& ctx) {
  MILLRACE_RETURN_IF_ERROR(check_rank(ctx, "X", 0, 2));
  const VarMeta x = ctx.input("X");
  if (!x.has_shape) {
    ctx.set_output("Out", unknown_like(x));
    return Ok();
  }
  const int64_t offset = ctx.attr<int32_t>("offset");
  if (x.rank() < 2) {
    const int64_t length = x.rank() == 0 ? 1 : x.dims[0];
    int64_t size = -1;
    if (length >= 0 && __builtin_add_overflow(length, std::abs(offset), &size)) size = -1;
    ctx.set_output("Out", x.dtype, {size, size});
    return Ok();
  }
  int64_t size = -1;
  if (x.dims[0] >= 0 && x.dims[1] >= 0) {
    const int64_t rows = x.dims[0] + std::min<int64_t>(offset, 0);
    const int64_t columns = x.dims[1] - std::max<int64_t>(offset, 0);
    size = std::max<int64_t>(std::min(rows, columns), 0);
  }
  ctx.set_output("Out", x.dtype, {size});
  return Ok();
}

Status infer_eye(InferContext& ctx) {
  const auto rows = ctx.attr<int64_t>("num_rows");
  const auto columns = ctx.attr<int64_t>("num_columns");
  ctx.set_output("Out", ctx.dtype_attr("dtype"), {rows, columns < 0 ? rows : columns});
  return Ok();
}

Status infer_fill_diagonal(InferContext& ctx) {
  MILLRACE_RETURN_IF_ERROR(check_rank(ctx, "X", 2, 64));
  ctx.set_output("Out", without_offsets(ctx.input("X")));
  return Ok();
}

Status infer_matrices(InferContext& ctx) {
  MILLRACE_RETURN_IF_ERROR(check_rank(ctx, "X", 2, 64));
  return infer_unary(ctx);
}

}  // namespace

/// diag, diag_v2, eye, fill_diagonal, tril_triu
void add_tensor_diagonal(OpRegistry& registry) {
  registry.add(OpDef("diag")
                   .doc("square matrix with the vector on its diagonal")
                   .input("Diagonal", "a vector")
                   .output("Out", "[n, n]")
                   .infer(infer_diag));
  registry.add(OpDef("diag_v2")
                   .doc("matrix with the vector on a diagonal, or a diagonal of the matrix")
                   .input("X", "a vector or a matrix")
                   .output("Out", "a matrix or a vector")
                   .attr("offset", 0, "0 main diagonal, positive above it, negative below")
                   .attr("padding_value", 0.0F, "elements off the diagonal")
                   .infer(infer_diag_v2)
                   .grad(grad_of_x("diag_v2_grad", {"X"})));
  registry.add(OpDef("eye")
                   .doc("1 on the diagonal, else 0")
                   .output("Out", "[num_rows, num_columns]")
                   .required_attr<int64_t>("num_rows", "number of rows")
                   .range(0)
                   .attr("num_columns", int64_t{-1}, "number of columns; -1: as many as rows")
                   .range(-1)
                   .attr("dtype", 5, "element type of Out, a VarType number")
                   .infer(infer_eye));
  registry.add(OpDef("fill_diagonal")
                   .doc("X with one value on its diagonal")
                   .input("X", "at least two dims")
                   .output("Out", "shape and dtype of X")
                   .attr("value", 0.0F, "the value")
                   .attr("offset", 0, "which diagonal, see diag_v2")
                   .attr("wrap", false,
                         "continue with a new diagonal below the square part of a tall matrix")
                   .infer(infer_fill_diagonal)
                   .grad(grad_like_out("fill_diagonal_grad"))
                   .inplace("X", "Out"));
  registry.add(OpDef("tril_triu")
                   .doc("the lower or upper triangle of each matrix, the rest 0")
                   .input("X", "at least two dims; matrices in the last two")
                   .output("Out", "shape and dtype of X")
                   .attr("diagonal", 0, "diagonal that bounds the triangle, see diag_v2")
                   .attr("lower", false, "the lower triangle")
                   .infer(infer_matrices)
                   .grad(grad_like_out("tril_triu_grad"))
                   .inplace("X", "Out"));
}

}  // namespace millrace::ops
