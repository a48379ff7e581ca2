#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "framework/base/status.h"
#include "io/checkpoint/checkpoint.h"
#include "io/checkpoint/save.h"

/// A folder of checkpoints, one sub-folder `step-<n>` each.
namespace millrace::io {

/// One sub-folder.
struct CheckpointEntry {
  int64_t step = 0;
  std::string folder;     ///< path
  bool complete = false;  ///< has a manifest; nothing is said of what that holds
};

/// "<root>/step-<n>".
std::string checkpoint_folder(const std::string& root, int64_t step);

/// The sub-folders by rising step; other names do not matter. A root that is not there has none.
/// \param beside  such folders on other disks: a step is listed, in `root`, and is complete, where
///                it is so on any of them
/// Errors: kIo.
StatusOr<std::vector<CheckpointEntry>> list_checkpoints(
    const std::string& root, const std::shared_ptr<FileCalls>& calls = nullptr,
    const std::vector<std::string>& beside = {});

/// save_state_dict() into "<root>/step-<step>"; the coordinator then removes the oldest complete
/// checkpoints beyond `keep_last` (0 keeps all), and incomplete ones that are older than this one.
/// Errors: as save_state_dict(); errors of removing after a save that succeeded go to `warning`.
Status save_checkpoint(const LocalState& state, const std::string& root, int64_t step,
                       Gather& gather, CheckpointSaveOptions options = {}, int keep_last = 0,
                       std::string* warning = nullptr);
/// A job of one rank.
Status save_checkpoint(const LocalState& state, const std::string& root, int64_t step,
                       CheckpointSaveOptions options = {}, int keep_last = 0,
                       std::string* warning = nullptr);

/// Which checkpoint open_last_checkpoint() took.
struct LastCheckpoint {
  int64_t step = 0;
  Checkpoint checkpoint;
  std::vector<Status> skipped;  ///< why newer ones were not taken, newest first
};

/// The newest checkpoint that verifies, every byte of it; says which newer ones do not and why.
/// \param verify  false: one whose manifest and file sizes are right is taken; its bytes are
///                compared when they are loaded
/// Errors: kNotFound if there is no complete checkpoint; kInvalidData if there are some but none
/// can be loaded, with a note on each; kIo.
StatusOr<LastCheckpoint> open_last_checkpoint(const std::string& root, bool verify = true,
                                              const CheckpointLoadOptions& options = {});

/// The error of a folder none of whose checkpoints can be loaded, and why; kNotFound if there are
/// none.
Status none_can_be_loaded(const std::string& root, const std::vector<Status>& skipped);

/// What collect_garbage() removes.
struct Garbage {
  std::vector<CheckpointEntry> removed;
  std::vector<CheckpointEntry> kept;
};

/// Removes complete checkpoints beyond the newest `keep`, and incomplete ones older than the newest
/// complete one (a newer one may be being written). The manifest goes first, so that what is left
/// of a removal that is cut off counts as incomplete.
/// \param all_incomplete  also removes incomplete ones that are newer; for when nobody writes
/// \param dry_run         removes nothing
/// Errors: kInvalidArgument for keep < 1; kIo.
StatusOr<Garbage> collect_garbage(const std::string& root, int keep, bool all_incomplete = false,
                                  bool dry_run = false,
                                  const std::shared_ptr<FileCalls>& calls = nullptr);

}  // namespace millrace::io
