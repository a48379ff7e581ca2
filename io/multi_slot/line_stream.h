#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "framework/base/status.h"

namespace millrace::io {

/// Reads the bytes of a file sequentially. Decompresses if the file begins like gzip or zstd.
class InputBytes {
 public:
  InputBytes() = default;
  InputBytes(const InputBytes&) = delete;
  InputBytes& operator=(const InputBytes&) = delete;
  virtual ~InputBytes() = default;
  /// Fills `to` as far as bytes are available. \returns the number of bytes read; 0 at the end
  virtual StatusOr<size_t> read(char* to, size_t size) = 0;
};

/// The error for a file that begins with `first`, at least 5 bytes, like a Parquet file; ok for
/// other files. Parquet is read in Python only.
Status refuse_parquet(std::string_view first);

/// Opens a regular file, or standard input for "-".
/// Errors (with the path): kNotFound, kIo, kInvalidData for a folder, a device or damaged
/// compressed bytes, kUnimplemented for zstd if this build does not support it, and for Parquet.
StatusOr<std::unique_ptr<InputBytes>> open_input_bytes(const std::string& path);

/// Lines of a file, read in large pieces. Not thread-safe.
class LineStream {
 public:
  /// \param piece_bytes  number of bytes per read
  explicit LineStream(std::unique_ptr<InputBytes> bytes, size_t piece_bytes = size_t{1} << 20U);

  /// The next line without its line end, valid until the next call; false at the end of the file.
  /// The last line may lack its line end. A byte order mark of UTF-8 is left out. Errors: those of
  /// the bytes; kInvalidData for a line above 256 MiB.
  StatusOr<bool> next(std::string_view& line);
  /// Number of the last line returned, from 1.
  [[nodiscard]] int64_t number() const { return number_; }

 private:
  Status fill();
  /// Counts a line, and removes the byte order mark of the first one.
  void count(std::string_view& line);

  std::unique_ptr<InputBytes> bytes_;
  std::vector<char> buffer_;
  size_t begin_ = 0;
  size_t end_ = 0;
  bool at_end_ = false;
  int64_t number_ = 0;
};

}  // namespace millrace::io
