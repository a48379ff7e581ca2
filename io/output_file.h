#pragma once

#include <span>
#include <string>
#include <string_view>

#include "framework/base/file.h"
#include "framework/base/status.h"

namespace millrace::io {

/// A file that appears complete or not at all: written under a temporary name beside its own and
/// renamed by commit(). Without commit() the temporary file is removed.
///
/// Movable only. Thread-safety: one writer.
class OutputFile {
 public:
  /// Creates the temporary file. A symbolic link at the path is followed.
  /// Errors (all with the path): kUsage if the file exists and replace is kNo; kNotFound if the
  /// folder does not exist; kInvalidData if there is something that is no regular file; kIo.
  static StatusOr<OutputFile> create(const std::string& path, Replace replace);

  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&& other) = delete;
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  ~OutputFile();

  /// Appends the pieces one after another without copying them first. Errors: kIo with the path.
  Status write(std::span<const std::string_view> pieces);
  /// Gives the file its name. \param sync  flush file and folder to the disk first
  /// Errors: kIo, kUsage as above; the temporary file is gone then.
  Status commit(bool sync);

 private:
  OutputFile() = default;

  std::string path_;
  std::string temporary_;  ///< empty once there is nothing to remove
  Replace replace_ = Replace::kNo;
  int fd_ = -1;
};

}  // namespace millrace::io
