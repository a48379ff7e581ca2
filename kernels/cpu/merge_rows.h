#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <llvm/ADT/ArrayRef.h>

#include "framework/base/status.h"
#include "framework/distinct_ids.h"
#include "framework/tensor/value.h"

namespace millrace::kernels {

/// Selected rows in which every row occurs once: the values of rows that occur several times are
/// added up.
///
/// Keeps its memory between calls. Thread-safety: one call at a time.
class RowMerger {
 public:
  /// Sets rows and values. Values are copied only if a row occurs twice. Errors: kExecution for a
  /// row outside [0, height); kUnimplemented for elements other than f32 and f64; kResource.
  Status merge(const SelectedRows& from);

  /// Distinct rows in the order of their first occurrence.
  [[nodiscard]] llvm::ArrayRef<int64_t> rows() const { return distinct_.ids(); }
  /// Number of elements of a row.
  [[nodiscard]] int64_t width() const { return width_; }
  /// Values of rows(), row by row; T is the type of the elements. Valid as long as the argument of
  /// merge() is.
  template <typename T>
  [[nodiscard]] const T* values() const {
    return reinterpret_cast<const T*>(values_);
  }
  /// For every row of the whole tensor, its position in rows(); -1 for absent rows. Cost:
  /// O(height).
  llvm::ArrayRef<int32_t> positions(int64_t height);

 private:
  /// Sets sums_ and values_ to the sums of equal rows, added in the order of the input.
  template <typename T>
  Status add_up(const Tensor& from);

  DistinctIds distinct_;
  std::vector<int32_t> slots_;  ///< position in rows() of every input row
  std::vector<int32_t> positions_;
  Tensor sums_;  ///< values of rows(), if a row occurs twice
  int64_t width_ = 0;
  const std::byte* values_ = nullptr;  ///< of sums_, or of the argument of merge()
};

/// The same as new selected rows. Errors: as RowMerger::merge().
StatusOr<SelectedRows> merged_rows(const SelectedRows& from);

/// Number of elements per row, that is, the product of all dims but the first; 1 for rank 1.
int64_t row_width(const Tensor& tensor);

}  // namespace millrace::kernels
