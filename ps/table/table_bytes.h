#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "framework/base/status.h"

namespace millrace::ps {

/// Writes a table file: a magic string, the content, a checksum of both. Creates missing folders of
/// the path.
class TableWriter {
 public:
  /// Errors: kIo, kNotFound with the path.
  static StatusOr<std::unique_ptr<TableWriter>> create(const std::string& path,
                                                       std::string_view mark);
  virtual ~TableWriter() = default;
  virtual Status write(const void* bytes, size_t count) = 0;
  template <typename T>
  Status write_value(T value) {
    return write(&value, sizeof(value));
  }
  /// Renames the complete file to its final name. Errors: kIo.
  virtual Status commit() = 0;
};

/// Reads such a file, after checking its length, magic string and checksum.
class TableReader {
 public:
  /// Errors: kNotFound, kIo; kInvalidData with the path.
  static StatusOr<std::unique_ptr<TableReader>> open(const std::string& path,
                                                     std::string_view mark);
  virtual ~TableReader() = default;
  /// Number of bytes left.
  [[nodiscard]] virtual uint64_t left() const = 0;
  /// Errors: kInvalidData if fewer are left; kIo.
  virtual Status read(void* bytes, size_t count) = 0;
  template <typename T>
  Status read_value(T& value) {
    return read(&value, sizeof(value));
  }
};

}  // namespace millrace::ps
