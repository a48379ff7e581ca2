#include "io/checkpoint/box_stream.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace millrace::io {

BoxStream::BoxStream(const Checkpoint& from, const StoredTensor& tensor, Box box,
                     uint64_t max_bytes)
    : from_(from),
      tensor_(tensor),
      box_(std::move(box)),
      max_bytes_(max_bytes),
      size_(static_cast<uint64_t>(box_.numel() * dtype_size(tensor.dtype))) {
  // Find the outermost axis that can be split.
  while (axis_ + 1 < box_.shape.size() && box_.shape[axis_] == 1) ++axis_;
}

Status BoxStream::read(uint64_t offset, std::span<std::byte> to) {
  while (!to.empty()) {
    if (offset < begin_ || offset >= begin_ + buffer_.size()) {
      MILLRACE_RETURN_IF_ERROR(fill(offset));
    }
    const size_t at = offset - begin_;
    const size_t size = std::min(to.size(), buffer_.size() - at);
    std::memcpy(to.data(), buffer_.data() + at, size);
    to = to.subspan(size);
    offset += size;
  }
  // Free the memory: only one stream at a time needs a buffer.
  if (offset == size_) std::vector<std::byte>().swap(buffer_);
  return Ok();
}

// Reads the next group of rows, starting at a byte of the box; as many as fit in the buffer.
Status BoxStream::fill(uint64_t offset) {
  Box part = box_;
  if (box_.shape.empty()) {
    begin_ = 0;
    buffer_.resize(size_);
    return from_.read_box(tensor_.name, part, buffer_);
  }
  const auto rows = static_cast<uint64_t>(box_.shape[axis_]);
  const uint64_t row_bytes = size_ / rows;
  const uint64_t first = offset / row_bytes;
  const uint64_t count = std::min(rows - first, std::max<uint64_t>(1, max_bytes_ / row_bytes));
  part.offset[axis_] += static_cast<int64_t>(first);
  part.shape[axis_] = static_cast<int64_t>(count);
  begin_ = first * row_bytes;
  buffer_.resize(count * row_bytes);
  return from_.read_box(tensor_.name, part, buffer_);
}

}  // namespace millrace::io
