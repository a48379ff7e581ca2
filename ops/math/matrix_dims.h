#pragma once

#include <cstdint>
#include <optional>

#include "ops/infer_helpers.h"

namespace millrace::ops {

/// A tensor seen as a batch of matrices, after transposition.
struct MatrixDims {
  Dims batch;  ///< dims before the last two
  int64_t rows = 1;
  int64_t cols = 1;
};

/// X as matrices. A vector is a row; transposed it is a column.
MatrixDims left_matrix(llvm::ArrayRef<int64_t> dims, bool transpose);
/// Y as matrices. A vector is a column; transposed it is a row.
MatrixDims right_matrix(llvm::ArrayRef<int64_t> dims, bool transpose);

/// Batch dims of a product: equal, or broadcast with dims of 1 (and missing leading dims).
/// Errors: they differ; the message names X and Y.
StatusOr<Dims> product_batch(const InferContext& ctx, const MatrixDims& x, const MatrixDims& y);
/// Errors: columns of X and rows of Y differ.
Status check_inner(const InferContext& ctx, const MatrixDims& x, const MatrixDims& y);

/// 2 * batch * rows * inner * cols; twice that for the gradient op, which does two products.
double product_flops(const InferContext& ctx, const MatrixDims& x, const MatrixDims& y);

}  // namespace millrace::ops
