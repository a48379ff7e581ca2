#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "framework/base/status.h"

namespace millrace::io {

/// What is known of a file before it is written.
struct NewFile {
  uint64_t bytes = 0;  ///< what will be written about, as a hint
  bool sync = false;   ///< sync() will be called: its bytes may go past the system's cache
};

/// A file that checkpoints write: create() of FileCalls makes it.
///
/// What was written may be lost by a crash until sync() has returned. The destructor closes without
/// a word. Thread-safety: one writer.
class WritableFile {
 public:
  WritableFile() = default;
  WritableFile(const WritableFile&) = delete;
  WritableFile& operator=(const WritableFile&) = delete;
  virtual ~WritableFile();

  /// Appends the pieces one after another. Errors: kIo, kResource for a full disk.
  virtual Status write(std::span<const std::string_view> pieces) = 0;
  /// Waits until everything that was written is on the disk. Errors: kIo.
  virtual Status sync() = 0;
  /// Ends writing; the error of the last write may show here. Errors: kIo, kResource.
  virtual Status close() = 0;
};

/// A file that checkpoints read. Thread-safety: concurrent readers.
class ReadableFile {
 public:
  ReadableFile() = default;
  ReadableFile(const ReadableFile&) = delete;
  ReadableFile& operator=(const ReadableFile&) = delete;
  virtual ~ReadableFile();

  /// Path, for messages.
  [[nodiscard]] virtual const std::string& path() const = 0;
  /// Bytes at the time of opening.
  [[nodiscard]] virtual uint64_t size() const = 0;
  /// Fills `to` from offset on. Errors: kInvalidData if the bytes end before; kIo.
  virtual Status read(uint64_t offset, std::span<std::byte> to) const = 0;
  /// These bytes are read soon: the system may begin with it. A hint; nothing follows from it.
  virtual void will_read(uint64_t /*offset*/, uint64_t /*bytes*/) const {}
};

/// The calls of the operating system that checkpoints are made of, so that tests can stand in
/// between: cut writes, lose what was not synced, refuse the n-th call.
///
/// Statuses carry the path. Thread-safety: concurrent calls.
class FileCalls {
 public:
  FileCalls() = default;
  FileCalls(const FileCalls&) = delete;
  FileCalls& operator=(const FileCalls&) = delete;
  virtual ~FileCalls();

  /// A new file; one that is there is an error (kUsage). Errors: also kNotFound, kIo, kResource.
  virtual StatusOr<std::unique_ptr<WritableFile>> create(const std::string& path,
                                                         const NewFile& file) = 0;
  /// A regular file; a symbolic link, a folder or a device at the path is refused.
  /// Errors: kNotFound, kInvalidData, kIo.
  virtual StatusOr<std::unique_ptr<ReadableFile>> open(const std::string& path) = 0;
  /// Replaces `to`. Errors: kIo.
  virtual Status rename(const std::string& from, const std::string& to) = 0;
  /// Removes a file; one that is not there is fine. Errors: kIo.
  virtual Status remove(const std::string& path) = 0;
  /// Removes an empty folder; one that is not there is fine. Errors: kIo.
  virtual Status remove_folder(const std::string& path) = 0;
  /// Makes one folder. \returns false if it was there
  /// Errors: kNotFound if the one above it is not there; kInvalidData for a file of that name; kIo.
  virtual StatusOr<bool> make_folder(const std::string& path) = 0;
  /// Waits until the names in a folder are on the disk. Errors: kIo, kNotFound.
  virtual Status sync_folder(const std::string& path) = 0;
  /// Names in a folder, sorted. Errors: kNotFound, kIo.
  virtual StatusOr<std::vector<std::string>> list(const std::string& path) = 0;
};

/// Makes a folder and those above it, and with `sync` waits until their names are on the disk.
Status make_folders(FileCalls& calls, const std::string& path, bool sync);

/// The folder that a path is in: "." for a bare name.
std::string parent_of(const std::string& path);

/// The calls as they are.
std::shared_ptr<FileCalls> system_file_calls();

}  // namespace millrace::io
