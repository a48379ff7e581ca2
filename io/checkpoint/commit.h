#pragma once

#include <string>
#include <vector>

#include "framework/base/status.h"
#include "io/checkpoint/file_calls.h"
#include "io/checkpoint/manifest.h"
#include "io/checkpoint/save.h"

namespace millrace::io {

/// The folder of a checkpoint while it is written: made ready, committed, cleaned up. Every rank of
/// a save has one, for the same folder or for one on its own disk; so has whoever writes all data
/// files alone.
class CheckpointFolder {
 public:
  CheckpointFolder(FileCalls& calls, std::string folder, const CheckpointSaveOptions& options)
      : calls_(calls), folder_(std::move(folder)), options_(options) {}

  /// Makes the folder and finds a generation that no file in it has.
  /// Errors: kUsage if there is a checkpoint that may not be replaced; kIo.
  Status look();
  /// True if look() has found a checkpoint.
  [[nodiscard]] bool complete() const { return complete_; }
  /// Stands in the names of the data files.
  [[nodiscard]] int64_t generation() const { return generation_; }
  /// Takes the generation of all ranks, at least that of look(), and removes what a save that was
  /// cut off has left, unless it may belong to a checkpoint. Other ranks may write meanwhile.
  /// Errors: kIo.
  Status begin(int64_t generation, bool any_complete);
  /// look() and begin() of whoever writes alone.
  Status prepare();
  [[nodiscard]] std::string path_of(std::string_view name) const {
    return folder_ + "/" + std::string(name);
  }
  /// A path to remove after an error.
  void add_written(const std::string& name) { written_.push_back(path_of(name)); }
  /// Whether what was written belongs to a checkpoint is not known here: roll_back() leaves it
  /// until take_written().
  void hold_written() { held_ = true; }
  void take_written() { held_ = false; }

  /// True if all files of a manifest are here, as long as it says.
  [[nodiscard]] bool has_files_of(const Manifest& manifest) const;
  /// Checks the manifest and that its files are there, gives it its name, which makes the folder a
  /// checkpoint, and removes files of the checkpoint that was replaced.
  Status commit(const Manifest& manifest);

  /// The parts of commit(), for ranks that do them in step. write_manifest() checks that the files
  /// that were written here are there, and gives the manifest a temporary name.
  /// \param rank  stands in that name; ranks may have one folder
  Status write_manifest(const Manifest& manifest, const std::string& text, int32_t rank);
  /// Gives it its name.
  Status publish();
  /// Removes files of the checkpoint that was replaced.
  Status remove_replaced(const Manifest& manifest);
  /// Removes what was written, and the folder if it was made for it, unless the manifest may have
  /// its name already. The error that leads here is what counts: a disk that refuses to remove
  /// leaves files that the next save or gc removes.
  void roll_back();

 private:
  [[nodiscard]] bool has_file(const StoredFile& file) const;
  Status write_temporary(const std::string& text, std::string_view name);

  FileCalls& calls_;
  std::string folder_;
  const CheckpointSaveOptions& options_;
  int64_t generation_ = 0;
  bool complete_ = false;
  bool made_ = false;  ///< the folder was not there
  std::vector<std::string> written_;
  std::string temporary_;  ///< of the manifest
  bool held_ = false;
  bool committing_ = false;
};

/// Removes the manifest of a checkpoint, which is none any more then. A folder that is not there is
/// fine. Errors: kIo.
Status withdraw_checkpoint(FileCalls& calls, const std::string& folder);
/// Removes the files that checkpoints are made of, and the folder if nothing else is in it.
Status remove_withdrawn(FileCalls& calls, const std::string& folder);

}  // namespace millrace::io
