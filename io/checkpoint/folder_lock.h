#pragma once

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "framework/base/status.h"

namespace millrace::io {

/// Keeps other processes from writing checkpoints to a folder: a lock on the file `<folder>.lock`
/// beside the folder, which holds a line about the process that has it. The kernel releases the
/// lock when that process ends for any reason; the file stays. Locks are advisory and work between
/// machines if the file system supports them (NFS 4 does).
///
/// Movable only. Not thread-safe.
class FolderLock {
 public:
  /// Takes the lock; creates the file, and the folder above it, if they are missing.
  /// \param holder    what this process is, for messages of others: "server a:1"
  /// \param patience  how long to wait for another holder, which may be ending
  /// Errors: kResource naming process, machine and holder if another process has the lock; kIo.
  static StatusOr<FolderLock> take(const std::string& folder, const std::string& holder,
                                   std::chrono::milliseconds patience = {});
  FolderLock(FolderLock&& other) noexcept
      : path_(std::move(other.path_)), file_(std::exchange(other.file_, -1)) {}
  FolderLock& operator=(FolderLock&& other) noexcept {
    std::swap(path_, other.path_);
    std::swap(file_, other.file_);
    return *this;
  }
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;
  ~FolderLock();

  /// False if the file was removed or replaced, so that another process may have the lock, too.
  [[nodiscard]] bool is_held() const;

 private:
  FolderLock(std::string path, int file) : path_(std::move(path)), file_(file) {}

  std::string path_;
  int file_ = -1;
};

/// Takes the lock of a folder if it has a lock file: one that no process ever locked has none.
/// \returns one lock or none. Errors: as FolderLock::take().
StatusOr<std::vector<FolderLock>> lock_if_used(const std::string& folder,
                                               const std::string& holder);

/// Takes the locks of all folders directly below `root` that have lock files; a root that does not
/// exist has none. Errors: as FolderLock::take().
StatusOr<std::vector<FolderLock>> lock_used_in(const std::string& root, const std::string& holder);

}  // namespace millrace::io
