#pragma once

#include <algorithm>
#include <cstdint>

#include "framework/tensor/value.h"

namespace millrace::kernels {

/// Position of a row's values in a table that is stored as selected rows with ascending row
/// numbers; negative if the table lacks the row. Fast for tables that have every n-th row, as on
/// pservers.
/// Cost: O(1) if the distance of the first two row numbers predicts the position, else O(log rows).
inline int64_t row_position(const SelectedRows& table, int64_t row) {
  const auto& rows = table.rows;
  if (rows.empty()) return -1;
  if (rows.size() > 1 && rows[1] > rows[0]) {
    const int64_t guess = (row - rows[0]) / (rows[1] - rows[0]);
    if (guess >= 0 && guess < static_cast<int64_t>(rows.size()) &&
        rows[static_cast<size_t>(guess)] == row)
      return guess;
  }
  const auto found = std::lower_bound(rows.begin(), rows.end(), row);
  return found == rows.end() || *found != row ? -1 : found - rows.begin();
}

/// The rows of a table, which is a matrix or selected rows; null if the value is neither or has no
/// rows.
inline const Tensor* rows_of_table(const Value& table) {
  const auto* const selected = table.get_if<SelectedRows>();
  const Tensor* const rows = selected != nullptr ? &selected->value : table.get_if<Tensor>();
  return rows != nullptr && rows->initialized() && rows->rank() > 0 ? rows : nullptr;
}

}  // namespace millrace::kernels
