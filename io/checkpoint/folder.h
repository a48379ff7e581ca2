#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "framework/base/status.h"
#include "io/checkpoint/checkpoint.h"
#include "io/checkpoint/save.h"

/// A root folder of checkpoints, with one sub-folder `step-<n>` each.
namespace millrace::io {

/// One checkpoint folder.
struct CheckpointEntry {
  int64_t step = 0;
  std::string folder;     ///< path
  bool complete = false;  ///< has a manifest, whose content was not checked
};

/// "<root>/step-<n>".
std::string checkpoint_folder(const std::string& root, int64_t step);

/// Lists the checkpoint folders by increasing step; other names are ignored. A root that does not
/// exist has none.
/// \param beside  further roots on other disks. A step is listed (as a folder in `root`) if any
///                root has it, and complete if it is complete in any root
/// Errors: kIo.
StatusOr<std::vector<CheckpointEntry>> list_checkpoints(
    const std::string& root, const std::shared_ptr<FileCalls>& calls = nullptr,
    const std::vector<std::string>& beside = {});

/// save_state_dict() to "<root>/step-<step>". The coordinator then removes the oldest complete
/// checkpoints beyond `keep_last` (0 keeps all), and incomplete checkpoints that are older than
/// this one.
/// Errors: as save_state_dict(); errors of the removal after a successful save go to `warning`.
Status save_checkpoint(const LocalState& state, const std::string& root, int64_t step,
                       Gather& gather, CheckpointSaveOptions options = {}, int keep_last = 0,
                       std::string* warning = nullptr);
/// For a job of one rank.
Status save_checkpoint(const LocalState& state, const std::string& root, int64_t step,
                       CheckpointSaveOptions options = {}, int keep_last = 0,
                       std::string* warning = nullptr);

/// The result of open_last_checkpoint().
struct LastCheckpoint {
  int64_t step = 0;
  Checkpoint checkpoint;
  std::vector<Status> skipped;  ///< why newer checkpoints were not used, newest first
};

/// Opens the newest checkpoint that verifies, comparing every byte. Also returns which newer
/// checkpoints do not verify and why.
/// \param verify  false: only manifest and file sizes are checked; bytes are compared when they are
///                loaded
/// Errors: kNotFound if there is no complete checkpoint; kInvalidData if there are complete
/// checkpoints but none can be loaded, with a note on each; kIo.
StatusOr<LastCheckpoint> open_last_checkpoint(const std::string& root, bool verify = true,
                                              const CheckpointLoadOptions& options = {});

/// The error for a folder none of whose checkpoints can be loaded, with the reasons; kNotFound if
/// it has no checkpoints.
Status none_can_be_loaded(const std::string& root, const std::vector<Status>& skipped);

/// What collect_garbage() removed.
struct Garbage {
  std::vector<CheckpointEntry> removed;
  std::vector<CheckpointEntry> kept;
};

/// Removes complete checkpoints beyond the newest `keep`, and incomplete checkpoints older than the
/// newest complete one (a newer one may be in the process of being written). The manifest is
/// removed first, so that a checkpoint whose removal is interrupted counts as incomplete.
/// \param all_incomplete  also removes newer incomplete checkpoints; only safe while no save is
///                        running
/// \param dry_run  removes nothing
/// Errors: kInvalidArgument for keep < 1; kIo.
StatusOr<Garbage> collect_garbage(const std::string& root, int keep, bool all_incomplete = false,
                                  bool dry_run = false,
                                  const std::shared_ptr<FileCalls>& calls = nullptr);

/// Removes all checkpoints after a step, complete or not, the newest one first. No save may be
/// running. Errors: kIo; then earlier ones are left, which are still after the step.
Status remove_checkpoints_after(const std::string& root, int64_t step,
                                const std::shared_ptr<FileCalls>& calls = nullptr);

}  // namespace millrace::io
