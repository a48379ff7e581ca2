#include "ps/slices/row_routes.h"

#include <algorithm>

namespace millrace::ps {

size_t slice_of(llvm::ArrayRef<int64_t> ends, int64_t row) {
  if (ends.size() > 8)
    return static_cast<size_t>(std::upper_bound(ends.begin(), ends.end(), row) - ends.begin());
  // branch-free: the slice of a row is unpredictable
  size_t slice = 0;
  for (const int64_t end : ends) slice += static_cast<size_t>(row >= end);
  return slice;
}

void RowRoutes::begin(llvm::ArrayRef<int64_t> ends, size_t most) {
  ends_.assign(ends.begin(), ends.end());
  places_.clear();
  places_.reserve(most);
  firsts_.clear();
  firsts_.reserve(most);
  rows_.resize(ends.size());
  for (std::vector<int64_t>& rows : rows_) rows.clear();
  distinct_.begin(most);
}

RowRoutes::Place RowRoutes::new_place(int64_t row) {
  const size_t slice = slice_of(ends_, row);
  std::vector<int64_t>& own = rows_[slice];
  own.push_back(row - (slice == 0 ? 0 : ends_[slice - 1]));
  return {static_cast<int32_t>(slice), static_cast<int32_t>(own.size()) - 1};
}

std::optional<int64_t> RowRoutes::add(std::span<const int64_t> rows, int64_t padding) {
  const int64_t height = ends_.empty() ? 0 : ends_.back();
  for (const int64_t row : rows) {
    if (row == padding && padding >= 0) {
      places_.push_back({});
      continue;
    }
    if (row < 0 || row >= height) return row;
    const size_t position = distinct_.add(row);
    if (position == firsts_.size()) firsts_.push_back(new_place(row));
    places_.push_back(firsts_[position]);
  }
  return std::nullopt;
}

}  // namespace millrace::ps
