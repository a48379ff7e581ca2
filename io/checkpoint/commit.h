#pragma once

#include <string>
#include <vector>

#include "framework/base/status.h"
#include "io/checkpoint/file_calls.h"
#include "io/checkpoint/manifest.h"
#include "io/checkpoint/save.h"

namespace millrace::io {

/// The folder of a checkpoint during a save: prepared, then committed or rolled back. Every rank of
/// a save has one object, for a shared folder or for a folder on its own disk. A process that
/// writes all data files alone has one too.
class CheckpointFolder {
 public:
  CheckpointFolder(FileCalls& calls, std::string folder, const CheckpointSaveOptions& options)
      : calls_(calls), folder_(std::move(folder)), options_(options) {}

  /// Creates the folder and finds a generation that no file in it has.
  /// Errors: kUsage if there is a checkpoint that may not be replaced; kIo.
  Status look();
  /// True if look() has found a checkpoint.
  [[nodiscard]] bool complete() const { return complete_; }
  /// Part of the names of the data files.
  [[nodiscard]] int64_t generation() const { return generation_; }
  /// Uses the generation that all ranks agreed on (at least that of look()). Removes what an
  /// interrupted save has left, unless it may belong to a checkpoint. Other ranks may write
  /// meanwhile.
  /// Errors: kIo.
  Status begin(int64_t generation, bool any_complete);
  /// look() and begin() for a process that writes alone.
  Status prepare();
  [[nodiscard]] std::string path_of(std::string_view name) const {
    return folder_ + "/" + std::string(name);
  }
  /// Adds a path that roll_back() removes.
  void add_written(const std::string& name) { written_.push_back(path_of(name)); }
  /// Marks that this rank does not know whether the written files belong to a checkpoint.
  /// roll_back() then keeps them until take_written() is called.
  void hold_written() { held_ = true; }
  void take_written() { held_ = false; }

  /// True if all files of a manifest are in this folder with the sizes that it states. An error if
  /// a file that may be there cannot be opened.
  [[nodiscard]] StatusOr<bool> has_files_of(const Manifest& manifest) const;
  /// Checks the manifest and that its files exist, renames it to its final name, which makes the
  /// folder a checkpoint, and removes the files of the checkpoint that was replaced.
  Status commit(const Manifest& manifest);

  /// The stages of commit(), for ranks that execute them in lockstep. write_manifest() checks that
  /// the files written by this rank exist, and writes the manifest under a temporary name.
  /// \param rank  part of the temporary name, because ranks may share a folder
  Status write_manifest(const Manifest& manifest, const std::string& text, int32_t rank);
  /// Renames the manifest to its final name.
  Status publish();
  /// Removes files of the checkpoint that was replaced.
  Status remove_replaced(const Manifest& manifest);
  /// Removes what was written, and the folder if it was created for this save, unless the manifest
  /// may already have its final name. Errors are ignored, because the error that caused the
  /// roll-back is the one to report: files that cannot be removed are removed by the next save or
  /// by gc.
  void roll_back();

 private:
  [[nodiscard]] StatusOr<bool> has_file(const StoredFile& file) const;
  [[nodiscard]] Status check_file(const StoredFile& file) const;
  Status write_temporary(const std::string& text, std::string_view name);

  FileCalls& calls_;
  std::string folder_;
  const CheckpointSaveOptions& options_;
  int64_t generation_ = 0;
  bool complete_ = false;
  bool made_ = false;  ///< the folder did not exist before
  std::vector<std::string> written_;
  std::string temporary_;  ///< temporary path of the manifest
  bool held_ = false;
  bool committing_ = false;
};

/// Removes the manifest, so that the folder is no longer a checkpoint. A missing folder is not an
/// error. Errors: kIo.
Status withdraw_checkpoint(FileCalls& calls, const std::string& folder);
/// Removes the data files of a checkpoint, and the folder if it contains nothing else.
Status remove_withdrawn(FileCalls& calls, const std::string& folder);

}  // namespace millrace::io
