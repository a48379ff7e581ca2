#include "ops/math/matrix_dims.h"

#include <algorithm>
#include <utility>

namespace millrace::ops {
namespace {

MatrixDims split_batch(llvm::ArrayRef<int64_t> dims, bool transpose) {
  MatrixDims out;
  out.batch.assign(dims.begin(), dims.end() - 2);
  out.rows = dims[dims.size() - 2];
  out.cols = dims.back();
  if (transpose) std::swap(out.rows, out.cols);
  return out;
}

double factor(int64_t dim) {
  return dim < 0 ? 1.0 : static_cast<double>(dim);
}

double count(llvm::ArrayRef<int64_t> dims) {
  double out = 1;
  for (const int64_t dim : dims) out *= factor(dim);
  return out;
}

}  // namespace

MatrixDims left_matrix(llvm::ArrayRef<int64_t> dims, bool transpose) {
  if (dims.size() >= 2) return split_batch(dims, transpose);
  MatrixDims out;
  (transpose ? out.rows : out.cols) = dims.empty() ? 1 : dims[0];
  return out;
}

MatrixDims right_matrix(llvm::ArrayRef<int64_t> dims, bool transpose) {
  if (dims.size() >= 2) return split_batch(dims, transpose);
  MatrixDims out;
  (transpose ? out.cols : out.rows) = dims.empty() ? 1 : dims[0];
  return out;
}

StatusOr<Dims> product_batch(const InferContext& ctx, const MatrixDims& x, const MatrixDims& y) {
  const Dims& longer = x.batch.size() >= y.batch.size() ? x.batch : y.batch;
  const Dims& shorter = x.batch.size() >= y.batch.size() ? y.batch : x.batch;
  Dims out = longer;
  for (size_t i = 0; i < shorter.size(); ++i) {
    int64_t& dim = out[longer.size() - shorter.size() + i];
    const int64_t other = shorter[i];
    if (!dims_agree(dim, other) && dim != 1 && other != 1) {
      return ctx.error("batch dims of X {} and Y {} differ", dims_text(ctx.input("X").dims),
                       dims_text(ctx.input("Y").dims));
    }
    if (dim == 1 || (dim < 0 && other > 1)) dim = other;
  }
  return out;
}

Status check_inner(const InferContext& ctx, const MatrixDims& x, const MatrixDims& y) {
  if (dims_agree(x.cols, y.rows)) return Ok();
  return ctx.error("X {} has matrices of {} columns, but Y {} has matrices of {} rows",
                   dims_text(ctx.input("X").dims), x.cols, dims_text(ctx.input("Y").dims), y.rows);
}

double product_flops(const InferContext& ctx, const MatrixDims& x, const MatrixDims& y) {
  const double batch = std::max(count(x.batch), count(y.batch));
  const double one = 2 * batch * factor(x.rows) * factor(x.cols) * factor(y.cols);
  return ctx.def().forward() != nullptr ? 2 * one : one;
}

}  // namespace millrace::ops
