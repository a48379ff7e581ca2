#pragma once

#include <llvm/ADT/ArrayRef.h>

#include "framework/base/status.h"
#include "framework/tensor/value.h"

/// Concatenates values by rows, that is, along dim 0. Thread-safety: pure.
namespace millrace {

/// Gives `to` the element type and the dims of `like`, but another number of rows; [rows] if `like`
/// has no dims. Its elements are undefined. Errors: kResource.
Status resize_rows(const Tensor& like, int64_t rows, Tensor& to);

/// Concatenates tensors that differ at most in dim 0, reusing the memory of `whole`.
/// \param parts  at least one; `whole` is none of them
/// Errors: kExecution for a part without rows as dim 0, or whose element type or other dims differ
/// from those of the first part, or that has a layout; kResource.
Status join_rows(llvm::ArrayRef<const Tensor*> parts, Tensor& whole);

/// Concatenates selected rows; repeated rows are kept, row numbers stay. Parts without rows may
/// have any form.
/// \param parts  at least one; `whole` is none of them
/// Errors: as above, also for different heights, and for a part whose number of values is not that
/// of its rows.
Status join_rows(llvm::ArrayRef<const SelectedRows*> parts, SelectedRows& whole);

}  // namespace millrace
