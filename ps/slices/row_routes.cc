#include "ps/slices/row_routes.h"

#include <algorithm>
#include <bit>

namespace millrace::ps {
namespace {

// A multiplicative hash: spreads consecutive rows, which are common, over the table.
constexpr uint64_t kSpread = 0x9E3779B97F4A7C15ULL;

}  // namespace

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
  rows_.resize(ends.size());
  for (std::vector<int64_t>& rows : rows_) rows.clear();
  // at most half of the table is occupied
  const size_t capacity = std::bit_ceil(2 * most + 2);
  table_.assign(capacity, 0);
  shift_ = 64U - static_cast<unsigned>(std::bit_width(capacity - 1));
}

RowRoutes::Place RowRoutes::new_place(int64_t row) {
  const size_t slice = slice_of(ends_, row);
  std::vector<int64_t>& own = rows_[slice];
  own.push_back(row - (slice == 0 ? 0 : ends_[slice - 1]));
  return {static_cast<int32_t>(slice), static_cast<int32_t>(own.size()) - 1};
}

std::optional<int64_t> RowRoutes::add(std::span<const int64_t> rows, int64_t padding) {
  const int64_t height = ends_.empty() ? 0 : ends_.back();
  const size_t mask = table_.size() - 1;
  for (const int64_t row : rows) {
    if (row == padding && padding >= 0) {
      places_.push_back({});
      continue;
    }
    if (row < 0 || row >= height) return row;
    size_t at = static_cast<size_t>((static_cast<uint64_t>(row) * kSpread) >> shift_);
    while (table_[at] != 0 && firsts_[static_cast<size_t>(table_[at]) - 1].row != row)
      at = (at + 1) & mask;
    if (table_[at] == 0) {
      firsts_.push_back({row, new_place(row)});
      table_[at] = static_cast<int32_t>(firsts_.size());
    }
    places_.push_back(firsts_[static_cast<size_t>(table_[at]) - 1].place);
  }
  return std::nullopt;
}

}  // namespace millrace::ps
