#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "framework/base/status.h"

namespace millrace::io {

/// Bytes that can be read at any offset: an open regular file, or memory of the caller.
///
/// Movable only. Thread-safety: concurrent readers.
class ByteSource {
 public:
  /// Opens a regular file. Directories, FIFOs, sockets and devices are rejected, so a wrong path
  /// cannot block. Errors (all with the path): kNotFound, kInvalidData, kIo.
  static StatusOr<ByteSource> open(const std::string& path);
  /// \param bytes  must outlive the source
  /// \param name  used in place of the file name in messages
  static ByteSource of_memory(std::string_view bytes, std::string name);

  ByteSource(ByteSource&& other) noexcept;
  ByteSource& operator=(ByteSource&& other) noexcept;
  ByteSource(const ByteSource&) = delete;
  ByteSource& operator=(const ByteSource&) = delete;
  ~ByteSource();

  /// Path of the file, for messages.
  [[nodiscard]] const std::string& name() const { return name_; }
  /// Size in bytes at the time of opening.
  [[nodiscard]] uint64_t size() const { return size_; }

  /// Fills `to` with the bytes starting at offset. Errors: kInvalidData if the source ends before;
  /// kIo.
  Status read(uint64_t offset, std::span<std::byte> to) const;

 private:
  ByteSource() = default;

  std::string name_;
  std::string_view memory_;
  uint64_t size_ = 0;
  int fd_ = -1;  ///< -1: the bytes are in memory_
};

}  // namespace millrace::io
