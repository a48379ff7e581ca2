#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "framework/base/status.h"

namespace millrace::ps {

/// Contiguous rows of equal size: a key of 8 bytes, then floats. Grows without copying, by
/// remapping pages, and allocates at most 1/64 more than its rows need.
///
/// Thread-safety: none.
class RowSlab {
 public:
  explicit RowSlab(int row_floats);
  RowSlab(const RowSlab&) = delete;
  RowSlab& operator=(const RowSlab&) = delete;
  ~RowSlab();

  /// Makes room for that many rows in total; their addresses may change. Errors: kResource.
  Status reserve(size_t rows);
  [[nodiscard]] size_t size() const { return size_; }
  /// Appends a row with undefined floats; there must be room. \returns its position
  size_t append(uint64_t key);
  /// Drops all rows from position `rows`.
  void truncate(size_t rows) { size_ = rows; }

  [[nodiscard]] const std::byte* address(size_t row) const { return data_ + row * stride_; }
  [[nodiscard]] uint64_t key(size_t row) const {
    uint64_t key = 0;
    std::memcpy(&key, data_ + row * stride_, sizeof(key));
    return key;
  }
  [[nodiscard]] float* floats(size_t row) {
    return reinterpret_cast<float*>(data_ + row * stride_ + sizeof(uint64_t));
  }
  [[nodiscard]] const float* floats(size_t row) const {
    return reinterpret_cast<const float*>(data_ + row * stride_ + sizeof(uint64_t));
  }
  /// Overwrites row `to` with row `from`.
  void copy(size_t from, size_t to);
  [[nodiscard]] size_t stride() const { return stride_; }
  [[nodiscard]] size_t memory_bytes() const { return bytes_; }

 private:
  size_t stride_;
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;  ///< bytes mapped
  size_t size_ = 0;
};

}  // namespace millrace::ps
