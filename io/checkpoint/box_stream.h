#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "framework/base/status.h"
#include "io/checkpoint/checkpoint.h"

namespace millrace::io {

/// Reads the bytes of a box of a stored dense tensor in increasing order, through a buffer. Not
/// thread-safe.
class BoxStream {
 public:
  /// \param from  must outlive the stream, as must the tensor
  /// \param max_bytes  maximum size of the buffer; at least one row of the outermost axis is always
  ///                   buffered
  BoxStream(const Checkpoint& from, const StoredTensor& tensor, Box box, uint64_t max_bytes);

  /// Fills `to` with the bytes of the box starting at `offset`. Errors: those of
  /// Checkpoint::read_box().
  Status read(uint64_t offset, std::span<std::byte> to);
  [[nodiscard]] uint64_t size() const { return size_; }

 private:
  Status fill(uint64_t offset);

  const Checkpoint& from_;
  const StoredTensor& tensor_;
  Box box_;
  uint64_t max_bytes_;
  uint64_t size_;
  size_t axis_ = 0;
  uint64_t begin_ = 0;  ///< offset of the buffer in the box
  std::vector<std::byte> buffer_;
};

}  // namespace millrace::io
