#pragma once

#include <string>

#include "framework/base/file.h"
#include "framework/base/status.h"

namespace millrace::tools {

/// A new folder that appears complete or not at all: it is filled under a temporary name beside its
/// own. Without commit() it is removed. A folder that is there already is filled in place, file by
/// file. Movable only.
class StagedFolder {
 public:
  /// Errors: kIo.
  static StatusOr<StagedFolder> create(std::string target);
  /// The same, but a folder that is there already is replaced whole, at once. \param replace  kNo:
  /// that is an error (kUsage) unless it is empty
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
  /// Gives the folder its name. \param sync  wait until that is on the disk
  /// Errors: kIo; kUsage if there is something of that name by now.
  Status commit(bool sync);

 private:
  explicit StagedFolder(std::string target);
  Status stage();

  std::string target_;
  std::string temporary_;  ///< empty: nothing to rename or to remove
  bool swaps_ = false;     ///< with what is there
};

}  // namespace millrace::tools
