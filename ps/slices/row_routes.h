#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include <llvm/ADT/ArrayRef.h>

#include "framework/distinct_ids.h"

namespace millrace::ps {

/// The slice of a row: the first whose end is after it; ends.size() for a row after all slices.
/// \param ends  one past the last row of each slice, ascending
size_t slice_of(llvm::ArrayRef<int64_t> ends, int64_t row);

/// Assigns row ids to the slices of a table of consecutive rows, keeping each distinct row once.
/// Reuses its memory from one list to the next. Thread-safety: one thread at a time.
class RowRoutes {
 public:
  /// Location of a row: its slice, and its position among the distinct rows of that slice.
  struct Place {
    int32_t slice = -1;  ///< -1: padding, which is in no slice
    int32_t position = 0;
  };

  /// Forgets all rows.
  /// \param ends  one past the last row of each slice, ascending
  /// \param most  maximum number of rows that add() will receive, including repeats
  void begin(llvm::ArrayRef<int64_t> ends, size_t most);
  /// Finds the locations of more rows. \param padding  row id to skip; negative: none
  /// \returns the first row that is in no slice; the rows after it are not added
  std::optional<int64_t> add(std::span<const int64_t> rows, int64_t padding = -1);

  /// One location for each row given, in order.
  [[nodiscard]] llvm::ArrayRef<Place> places() const { return places_; }
  /// Distinct rows of a slice in the order of their first occurrence, relative to its first row.
  [[nodiscard]] std::vector<int64_t>& rows(size_t slice) { return rows_[slice]; }
  /// Number of distinct rows of all slices.
  [[nodiscard]] size_t distinct() const { return distinct_.size(); }

 private:
  [[nodiscard]] Place new_place(int64_t row);

  std::vector<int64_t> ends_;
  std::vector<Place> places_;
  std::vector<std::vector<int64_t>> rows_;
  DistinctIds distinct_;
  std::vector<Place> firsts_;  ///< places of the distinct rows
};

}  // namespace millrace::ps
