#pragma once

#include <string>
#include <vector>

#include "framework/base/status.h"
#include "io/checkpoint/file_calls.h"
#include "io/checkpoint/manifest.h"
#include "io/checkpoint/save.h"

namespace millrace::io {

/// The folder of a checkpoint while one process writes it: made ready, committed, cleaned up.
/// Used by the coordinator of a save and by whoever writes all data files alone.
class CheckpointFolder {
 public:
  CheckpointFolder(FileCalls& calls, std::string folder, const CheckpointSaveOptions& options)
      : calls_(calls), folder_(std::move(folder)), options_(options) {}

  /// Makes the folder, finds a generation that no file in it has, and removes what a save that was
  /// cut off has left. Errors: kUsage if there is a checkpoint that may not be replaced; kIo.
  Status prepare();
  /// Stands in the names of the data files.
  [[nodiscard]] int64_t generation() const { return generation_; }
  [[nodiscard]] std::string path_of(std::string_view name) const {
    return folder_ + "/" + std::string(name);
  }
  /// A path to remove after an error.
  void add_written(const std::string& name) { written_.push_back(path_of(name)); }
  void forget_written() { written_.clear(); }

  /// Checks the manifest and that its files are there, gives it its name, which makes the folder a
  /// checkpoint, and removes files of the checkpoint that was replaced.
  Status commit(const Manifest& manifest);
  /// Removes what was written, unless the manifest may have its name already. The error that leads
  /// here is what counts: a disk that refuses to remove leaves files that the next save or gc
  /// removes.
  void roll_back();

 private:
  Status publish(const std::string& text);
  Status remove_replaced(const Manifest& manifest);

  FileCalls& calls_;
  std::string folder_;
  const CheckpointSaveOptions& options_;
  int64_t generation_ = 0;
  std::vector<std::string> written_;
  bool committing_ = false;
};

}  // namespace millrace::io
