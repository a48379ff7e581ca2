#pragma once

#include <string>

#include "framework/base/file.h"
#include "framework/base/status.h"

namespace millrace::jobs {

/// A new folder that appears complete or not at all: it is filled under a temporary name in the
/// same parent folder and renamed by commit(). Without commit() it is removed. A process that is
/// killed leaves it; the next StagedFolder for the same target removes it, unless a process that
/// still runs holds its lock. A folder that already exists is filled in place, file by file.
/// Movable only.
class StagedFolder {
 public:
  /// Errors: kIo.
  static StatusOr<StagedFolder> create(std::string target);
  /// The same, but a folder that already exists is replaced as a whole, atomically. \param replace
  /// kNo: a non-empty existing folder is an error (kUsage)
  static StatusOr<StagedFolder> create(std::string target, Replace replace);
  StagedFolder(StagedFolder&& other) noexcept;
  StagedFolder& operator=(StagedFolder&&) = delete;
  StagedFolder(const StagedFolder&) = delete;
  StagedFolder& operator=(const StagedFolder&) = delete;
  ~StagedFolder();

  /// Where the files go.
  [[nodiscard]] const std::string& path() const {
    return temporary_.empty() ? target_ : temporary_;
  }
  /// Renames the folder to its final name. \param sync  wait until the rename is on disk. Errors:
  /// kIo; kUsage if something of that name exists by now.
  Status commit(bool sync);

 private:
  explicit StagedFolder(std::string target);
  Status stage();
  void unlock();

  std::string target_;
  std::string temporary_;  ///< empty: nothing to rename or to remove
  int lock_ = -1;          ///< the temporary folder, open and locked: this process fills it
  bool swaps_ = false;     ///< exchange with the existing folder
};

}  // namespace millrace::jobs
