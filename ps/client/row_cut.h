#pragma once

#include <vector>

#include "framework/base/status.h"
#include "framework/tensor/value.h"
#include "ps/client/row_routes.h"

namespace millrace::ps {

/// Splits selected rows into slices of consecutive rows and adds up rows that occur several times,
/// in one pass. Reuses its memory from one value to the next. Thread-safety: one thread at a time.
class RowCut {
 public:
  /// \param sections  rows of each slice; empty: one slice with all rows
  explicit RowCut(llvm::ArrayRef<int64_t> sections);

  /// Errors: kExecution for a row outside all slices; kUnimplemented for repeated rows with
  /// elements other than f32 and f64; kResource.
  Status cut(const SelectedRows& from);

  /// The slices, each row once, in the order of their first occurrence. Valid until the next cut().
  [[nodiscard]] llvm::ArrayRef<Value> pieces() const { return pieces_; }

 private:
  Status size_pieces(const SelectedRows& from, llvm::ArrayRef<int64_t> ends);

  std::vector<int64_t> ends_;
  RowRoutes routes_;
  std::vector<Value> pieces_;
};

}  // namespace millrace::ps
