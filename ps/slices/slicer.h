#pragma once

#include <vector>

#include "framework/base/status.h"
#include "framework/tensor/value.h"
#include "ps/slices/row_routes.h"

namespace millrace::ps {

/// What a Slicer does with selected rows that occur several times.
enum class Repeats {
  kKeep,   ///< every row in the order of the value, also repeated ones
  kAddUp,  ///< each row once, in the order of first occurrence; the values of equal rows are added
};

/// Splits values into slices of consecutive rows. Slices of a tensor are views of its memory.
/// Selected rows are copied in one pass, and their row numbers become relative to the first row of
/// their slice. Reuses its memory from one value to the next. Thread-safety: one thread at a time.
class Slicer {
 public:
  /// \param heights  rows of each slice; empty: one slice with all rows
  Slicer(llvm::ArrayRef<int64_t> heights, Repeats repeats);

  /// Errors: kExecution for a tensor whose rows the slices do not cover exactly, for other values,
  /// and for a row outside all slices; kUnimplemented for rows to add up with elements other than
  /// f32 and f64; kResource.
  Status split(const Value& from);

  /// One value for each slice. Valid until the next split().
  [[nodiscard]] llvm::ArrayRef<Value> slices() const { return slices_; }

 private:
  Status split_tensor(const Value& from);
  Status split_keeping(const SelectedRows& from, llvm::ArrayRef<int64_t> ends);
  Status split_adding_up(const SelectedRows& from, llvm::ArrayRef<int64_t> ends);
  Status resize_slice(size_t slice, const SelectedRows& from, llvm::ArrayRef<int64_t> ends,
                      size_t rows);

  std::vector<int64_t> ends_;  ///< one past the last row of each slice
  Repeats repeats_;
  RowRoutes routes_;
  std::vector<Value> slices_;
};

/// Puts the slices of a value together again: tensors, or selected rows with row numbers relative
/// to their slices. Reuses the memory of `whole`.
/// \param slices  at least one, in order
/// Errors: kExecution for slices of different kinds, types or widths; kResource.
Status join_slices(llvm::ArrayRef<Value> slices, Value& whole);

}  // namespace millrace::ps
