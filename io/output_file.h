#pragma once

#include <span>
#include <string>
#include <string_view>

#include "framework/base/file.h"
#include "framework/base/status.h"

namespace millrace::io {

/// A file that appears complete or not at all: written under a temporary name in the same folder
/// and renamed by commit(). Without commit() the temporary file is removed.
///
/// Movable only. Thread-safety: one writer.
class OutputFile {
 public:
  /// Creates the temporary file. A symbolic link at the path is followed.
  /// Errors (all with the path): kUsage if the file exists and replace is kNo; kNotFound if the
  /// folder does not exist; kInvalidData if the path is not a regular file; kIo.
  static StatusOr<OutputFile> create(const std::string& path, Replace replace);

  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&& other) = delete;
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  ~OutputFile();

  /// Appends the pieces in order, without copying them. Errors: kIo with the path.
  Status write(std::span<const std::string_view> pieces);
  /// Renames the file to its path. \param sync  flush file and folder to the disk
  /// Errors: kIo, kUsage as above; the temporary file is then removed.
  Status commit(bool sync);

 private:
  OutputFile() = default;

  std::string path_;
  std::string temporary_;  ///< empty once there is nothing to remove
  Replace replace_ = Replace::kNo;
  int fd_ = -1;
};

}  // namespace millrace::io
