#pragma once

#include <llvm/ADT/ArrayRef.h>

#include "kernels/kernel.h"

namespace millrace::kernels {

/// Offsets of the innermost LoD level, which cover the rows of the tensor. Errors: kExecution if
/// the tensor has no LoD or the offsets do not end at the last row; slot is the name of the input
/// for the message.
StatusOr<llvm::ArrayRef<int64_t>> sequences_of(const Tensor& tensor, const char* slot);

/// Offsets of the outermost level, of which some ops of the original take each entry for a row.
/// With several levels this fails unless it ends at the last row, too. Errors: as for
/// sequences_of().
StatusOr<llvm::ArrayRef<int64_t>> outer_sequences_of(const Tensor& tensor, const char* slot);

/// The row at which each sequence of the outermost level begins, and the number of rows. Errors: as
/// for sequences_of(), or kInvalidData for levels that do not fit together.
StatusOr<LodLevel> outer_rows_of(const Tensor& tensor, const char* slot);

/// A copy of a LoD with the last level replaced.
Lod with_last_level(const Lod& lod, LodLevel level);

/// Resizes a result to the element type and the row dims of `like`, with another number of rows.
/// Errors: kResource.
inline Status resize_rows(Tensor& to, const Tensor& like, int64_t rows) {
  Dims dims(like.dims().begin(), like.dims().end());
  dims[0] = rows;
  return to.resize(like.dtype(), dims);
}

}  // namespace millrace::kernels
