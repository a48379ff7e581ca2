#pragma once

#include <vector>

#include "framework/base/status.h"
#include "framework/tensor/value.h"
#include "ps/slices/row_routes.h"

namespace millrace::ps {

/// Splits selected rows into slices of consecutive rows and adds up rows that occur several times,
/// in one pass. Reuses its memory from one value to the next. Thread-safety: one thread at a time.
class RowSlicer {
 public:
  /// \param heights  rows of each slice; empty: one slice with all rows
  explicit RowSlicer(llvm::ArrayRef<int64_t> heights);

  /// Errors: kExecution for a row outside all slices; kUnimplemented for repeated rows with
  /// elements other than f32 and f64; kResource.
  Status split(const SelectedRows& from);

  /// The slices, each row once, in the order of their first occurrence. Valid until the next
  /// split().
  [[nodiscard]] llvm::ArrayRef<Value> slices() const { return slices_; }

 private:
  Status resize_slices(const SelectedRows& from, llvm::ArrayRef<int64_t> ends);

  std::vector<int64_t> ends_;
  RowRoutes routes_;
  std::vector<Value> slices_;
};

}  // namespace millrace::ps
