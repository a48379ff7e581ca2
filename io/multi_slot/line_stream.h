#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "framework/base/status.h"

namespace millrace::io {

/// Bytes of a file one after the other, decompressed if it begins like gzip or zstd.
class InputBytes {
 public:
  InputBytes() = default;
  InputBytes(const InputBytes&) = delete;
  InputBytes& operator=(const InputBytes&) = delete;
  virtual ~InputBytes() = default;
  /// Fills `to` as far as there are bytes. \returns how many came; 0 is the end
  virtual StatusOr<size_t> read(char* to, size_t size) = 0;
};

/// Opens a regular file, or with "-" standard input.
/// Errors (with the path): kNotFound, kIo, kInvalidData for a folder, a device or damaged
/// compressed bytes, kUnimplemented for zstd where it is not built in.
StatusOr<std::unique_ptr<InputBytes>> open_input_bytes(const std::string& path);

/// Lines of a file, read in large pieces. Not thread-safe.
class LineStream {
 public:
  /// \param piece_bytes  what is read at once
  explicit LineStream(std::unique_ptr<InputBytes> bytes, size_t piece_bytes = size_t{1} << 20U);

  /// The next line without its end, valid until the next call; false at the end. A last line needs
  /// no end. Errors: those of the bytes, kInvalidData for a line above 256 MiB.
  StatusOr<bool> next(std::string_view& line);
  /// Number of the line that came last, from 1.
  [[nodiscard]] int64_t number() const { return number_; }

 private:
  Status fill();

  std::unique_ptr<InputBytes> bytes_;
  std::vector<char> buffer_;
  size_t begin_ = 0;
  size_t end_ = 0;
  bool at_end_ = false;
  int64_t number_ = 0;
};

}  // namespace millrace::io
