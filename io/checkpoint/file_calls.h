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

/// What is known about a file before it is written.
struct NewFile {
  uint64_t bytes = 0;  ///< approximate size, as a hint
  bool sync = false;   ///< sync() will be called, so writes may bypass the page cache
};

/// A file that checkpoints write; created by FileCalls::create().
///
/// Data may be lost in a crash until sync() has returned. The destructor closes the file and
/// ignores errors. Thread-safety: one writer.
class WritableFile {
 public:
  WritableFile() = default;
  WritableFile(const WritableFile&) = delete;
  WritableFile& operator=(const WritableFile&) = delete;
  virtual ~WritableFile();

  /// Appends the pieces in order. Errors: kIo, kResource for a full disk.
  virtual Status write(std::span<const std::string_view> pieces) = 0;
  /// Waits until everything written so far is on the disk. Errors: kIo.
  virtual Status sync() = 0;
  /// Closes the file. The error of the last write may be reported here. Errors: kIo, kResource.
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
  /// Size in bytes at the time of opening.
  [[nodiscard]] virtual uint64_t size() const = 0;
  /// Fills `to` with the bytes starting at offset. Errors: kInvalidData if the file ends before;
  /// kIo.
  virtual Status read(uint64_t offset, std::span<std::byte> to) const = 0;
  /// Hint that these bytes will be read soon, so that the system may start reading them. Has no
  /// other effect.
  virtual void will_read(uint64_t /*offset*/, uint64_t /*bytes*/) const {}
};

/// The operating system calls that checkpoints use. Tests replace them to truncate writes, lose
/// data that was not synced, or fail the n-th call.
///
/// Errors carry the path. Thread-safety: concurrent calls.
class FileCalls {
 public:
  FileCalls() = default;
  FileCalls(const FileCalls&) = delete;
  FileCalls& operator=(const FileCalls&) = delete;
  virtual ~FileCalls();

  /// Creates a new file. Errors: kUsage if it exists; kNotFound, kIo, kResource.
  virtual StatusOr<std::unique_ptr<WritableFile>> create(const std::string& path,
                                                         const NewFile& file) = 0;
  /// Opens a regular file. A symbolic link, a folder or a device is rejected.
  /// Errors: kNotFound, kInvalidData, kIo.
  virtual StatusOr<std::unique_ptr<ReadableFile>> open(const std::string& path) = 0;
  /// Renames `from` to `to` and replaces an existing file. Errors: kIo.
  virtual Status rename(const std::string& from, const std::string& to) = 0;
  /// Removes a file. A missing file is not an error. Errors: kIo.
  virtual Status remove(const std::string& path) = 0;
  /// Removes an empty folder. A missing folder is not an error. Errors: kIo.
  virtual Status remove_folder(const std::string& path) = 0;
  /// Creates one folder. \returns false if it existed
  /// Errors: kNotFound if its parent does not exist; kInvalidData for a file of that name; kIo.
  virtual StatusOr<bool> make_folder(const std::string& path) = 0;
  /// Waits until the names in a folder are on the disk. Errors: kIo, kNotFound.
  virtual Status sync_folder(const std::string& path) = 0;
  /// Names in a folder, sorted. Errors: kNotFound, kIo.
  virtual StatusOr<std::vector<std::string>> list(const std::string& path) = 0;
};

/// Passes every call on to others. Base of calls that change some of them.
class ForwardedFileCalls : public FileCalls {
 public:
  explicit ForwardedFileCalls(std::shared_ptr<FileCalls> calls) : calls_(std::move(calls)) {}
  StatusOr<std::unique_ptr<WritableFile>> create(const std::string& path,
                                                 const NewFile& file) override;
  StatusOr<std::unique_ptr<ReadableFile>> open(const std::string& path) override;
  Status rename(const std::string& from, const std::string& to) override;
  Status remove(const std::string& path) override;
  Status remove_folder(const std::string& path) override;
  StatusOr<bool> make_folder(const std::string& path) override;
  Status sync_folder(const std::string& path) override;
  StatusOr<std::vector<std::string>> list(const std::string& path) override;

 protected:
  [[nodiscard]] FileCalls& calls() const { return *calls_; }

 private:
  std::shared_ptr<FileCalls> calls_;
};

/// Creates a folder and its parents. With `sync`, waits until their names are on the disk.
Status make_folders(FileCalls& calls, const std::string& path, bool sync);

/// The folder that a path is in: "." for a bare name.
std::string parent_of(const std::string& path);

/// The unmodified calls of the operating system.
std::shared_ptr<FileCalls> system_file_calls();

}  // namespace millrace::io
