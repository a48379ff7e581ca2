#include "ps/table/row_index.h"

#include <algorithm>
#include <new>

#include "framework/base/errors.h"

namespace millrace::ps {

Status RowIndex::reset(size_t rows) {
  if (rows > kMaxRows)
    return {
        StatusCode::kResource,
        fmt::format("a partition of a table holds at most {} rows, use more partitions", kMaxRows)};
  // 1.25 times the rows at an occupancy of 0.8: at most 1.5625 entries per row.
  const size_t capacity = std::max<size_t>(64, rows + rows * 9 / 16);
  places_.reset(new (std::nothrow) uint32_t[capacity]());
  if (places_ == nullptr) {
    capacity_ = size_ = 0;
    return {StatusCode::kResource, fmt::format("out of memory for an index of {} rows", rows)};
  }
  capacity_ = capacity;
  size_ = 0;
  return Ok();
}

}  // namespace millrace::ps
