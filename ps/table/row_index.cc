#include "ps/table/row_index.h"

#include <algorithm>
#include <new>

#include "framework/base/errors.h"

namespace millrace::ps {

Status RowIndex::reset(size_t rows) {
  if (rows > kMaxRows)
    return {StatusCode::kResource,
            fmt::format("a part of a table holds at most {} rows; give the table more parts",
                        kMaxRows)};
  // 1.25 times the rows at 0.8 of the places: 1.5625 places a row at the most.
  const size_t capacity = std::max<size_t>(64, rows + rows * 9 / 16);
  places_.reset(new (std::nothrow) uint32_t[capacity]());
  if (places_ == nullptr) {
    capacity_ = size_ = 0;
    return {StatusCode::kResource, fmt::format("no memory to find {} rows", rows)};
  }
  capacity_ = capacity;
  size_ = 0;
  return Ok();
}

}  // namespace millrace::ps
