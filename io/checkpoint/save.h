#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "framework/base/file.h"
#include "framework/base/status.h"
#include "io/checkpoint/file_calls.h"
#include "io/checkpoint/gather.h"
#include "io/checkpoint/state.h"

/// Saving checkpoints: a folder with safetensors files and, written last, `manifest.json`. A folder
/// without manifest is no checkpoint; a manifest appears by rename, so that a crash at any moment
/// leaves what was there before or the new checkpoint.
namespace millrace::io {

/// How a checkpoint is written. Equal on all ranks of a job.
struct CheckpointSaveOptions {
  int32_t coordinator = 0;  ///< rank that writes the manifest and what is whole everywhere
  /// kYes: a checkpoint that is there is replaced, and stays until the new one is complete.
  Replace replace = Replace::kNo;
  bool sync = true;  ///< wait until everything is on the disk
  /// That write and hash what a rank holds: files side by side, and where there are fewer files,
  /// checksums beside the writing. 0: as many as the machine runs, four at most.
  int threads = 0;
  uint64_t max_file_bytes = 0;       ///< a rank's data is split over files of about so much; 0: one
  uint64_t block_bytes = 1U << 20U;  ///< bytes that a checksum covers
  int64_t step = 0;                  ///< stands in the manifest
  std::shared_ptr<FileCalls> calls = nullptr;         ///< null: those of the system
  std::function<void(uint64_t bytes)> progress = {};  ///< called from any thread; may be null
};

/// Saves what the ranks of a job hold into a folder, each part once. A call on every rank; all
/// fail or none. Memory: what the manifest takes; tensors are written from where they are.
///
/// The folder may be one place for all ranks, or for each rank, or some of them, one on a disk of
/// their own. Then every folder gets the files of its ranks and the manifest, and ranks that can
/// reach all of them together load the checkpoint (io/checkpoint/spread_checkpoint.h). It is
/// complete as soon as one folder has the manifest, which appears nowhere before it and all files
/// are on all disks.
/// Errors: kInvalidArgument with the var for a state that is not consistent (see plan.h); kUsage if
/// there is a checkpoint and replace is kNo; kDistributed for ranks that do not come; kIo,
/// kResource for the disk. After an error files of this save are removed as far as the disk allows.
/// Source: seed 003, spec/checkpoint.md sections 2 and 6.
Status save_state_dict(const LocalState& state, const std::string& folder, Gather& gather,
                       const CheckpointSaveOptions& options = {});

/// What a save has found out.
struct SaveOutcome {
  bool spread = false;  ///< the ranks have no folder in common
};
/// save_state_dict() that tells.
StatusOr<SaveOutcome> save_together(const LocalState& state, const std::string& folder,
                                    Gather& gather, const CheckpointSaveOptions& options);

/// A job of one rank.
Status save_state_dict(const LocalState& state, const std::string& folder,
                       const CheckpointSaveOptions& options = {});

}  // namespace millrace::io
