#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <llvm/ADT/ArrayRef.h>

#include "framework/base/status.h"
#include "framework/tensor/value.h"

namespace millrace::kernels {

/// Selected rows with every row once: the values of rows that occur more than once are added.
///
/// Keeps its memory between calls. Thread-safety: one call at a time.
class RowMerger {
 public:
  /// Takes rows and values; values are copied only if a row occurs twice. Errors: kExecution for a
  /// row outside of [0, height); kUnimplemented for elements other than f32 and f64; kResource.
  Status merge(const SelectedRows& from);

  /// Distinct rows in the order of their first occurrence.
  [[nodiscard]] llvm::ArrayRef<int64_t> rows() const { return rows_; }
  /// Elements of a row.
  [[nodiscard]] int64_t width() const { return width_; }
  /// Values of rows(), row by row; T is the type of the elements. Valid as long as the argument of
  /// merge().
  template <typename T>
  [[nodiscard]] const T* values() const {
    return reinterpret_cast<const T*>(values_);
  }
  /// Position of a row in rows() for every row of the whole tensor, -1 for those that are absent.
  /// Cost: O(height).
  llvm::ArrayRef<int32_t> positions(int64_t height);

 private:
  void find_distinct(llvm::ArrayRef<int64_t> rows);
  template <typename T>
  Status add_up(const Tensor& from);

  std::vector<int64_t> rows_;
  std::vector<int32_t> slots_;  ///< position in rows_ of every given row
  std::vector<int32_t> table_;  ///< open addressing: position in rows_ + 1, 0 is free
  std::vector<int32_t> positions_;
  Tensor sums_;
  int64_t width_ = 0;
  const std::byte* values_ = nullptr;
};

/// Every row once, as selected rows of their own. Errors: as RowMerger::merge().
StatusOr<SelectedRows> merged_rows(const SelectedRows& from);

/// Elements behind the first dim; 1 for a tensor of rank 1.
int64_t row_width(const Tensor& tensor);

}  // namespace millrace::kernels
