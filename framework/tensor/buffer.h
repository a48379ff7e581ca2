#pragma once

#include <cstddef>
#include <memory>

#include "framework/base/status.h"

namespace millrace {

/// Alignment of every tensor's first byte: a cache line, and the widest vector register.
inline constexpr size_t kBufferAlignment = 64;

/// Memory shared by tensors.
///
/// Thread-safety: access to the bytes is not synchronized; users must do that.
class Buffer {
 public:
  /// Allocates uninitialized bytes; 0 is allowed. Errors: kResource with the number of bytes.
  static StatusOr<std::shared_ptr<Buffer>> allocate(size_t bytes);
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer();

  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] size_t size() const { return size_; }

 private:
  Buffer(std::byte* data, size_t size) : data_(data), size_(size) {}

  std::byte* data_;  ///< aligned to kBufferAlignment
  size_t size_;      ///< in bytes
};

}  // namespace millrace
