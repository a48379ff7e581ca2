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
/// without a manifest is not a checkpoint. The manifest appears by rename, so after a crash at any
/// moment the folder holds either the previous state or the new checkpoint.
namespace millrace::io {

/// Options for writing a checkpoint. Must be equal on all ranks of a job.
struct CheckpointSaveOptions {
  int32_t coordinator = 0;  ///< rank that writes the manifest and the values that all ranks have
  /// kYes: an existing checkpoint is replaced; it stays until the new one is complete.
  Replace replace = Replace::kNo;
  bool sync = true;  ///< wait until all bytes are on the disk
  /// Number of threads that write and hash the data of a rank. Several files are written in
  /// parallel; with fewer files than threads, checksums are computed in parallel to the writes. 0:
  /// the number of hardware threads, at most four.
  int threads = 0;
  uint64_t max_file_bytes = 0;       ///< approximate size of a rank's data files; 0: one file
  uint64_t block_bytes = 1U << 20U;  ///< bytes per checksum
  int64_t step = 0;                  ///< stored in the manifest
  std::shared_ptr<FileCalls> calls = nullptr;         ///< null: the system's
  std::function<void(uint64_t bytes)> progress = {};  ///< called from any thread; may be null
};

/// Saves the state of the ranks of a job to a folder; each part is written once. Must be called on
/// every rank; it fails on all ranks or on none. Memory: the size of the manifest; tensors are
/// written directly from their memory.
///
/// The folder may be shared by all ranks, or ranks may have folders on separate disks. In the
/// second case every folder gets the files of its ranks and the manifest, and ranks that can
/// together read all folders can load the checkpoint (io/checkpoint/spread_checkpoint.h). The
/// checkpoint is complete as soon as one folder has the manifest; the manifest appears in no folder
/// before it and all data files are on all disks.
/// Errors: kInvalidArgument with the var for an inconsistent state (see plan.h); kUsage if there is
/// a checkpoint and replace is kNo; kDistributed if a rank does not take part in time; kIo,
/// kResource for disk errors. After an error the files of this save are removed as far as the disk
/// allows.
/// Source: spec/checkpoint.md sections 2 and 6.
Status save_state_dict(const LocalState& state, const std::string& folder, Gather& gather,
                       const CheckpointSaveOptions& options = {});

/// Additional results of a save.
struct SaveOutcome {
  bool spread = false;  ///< the ranks do not share one folder
};
/// save_state_dict() that also returns a SaveOutcome.
StatusOr<SaveOutcome> save_together(const LocalState& state, const std::string& folder,
                                    Gather& gather, const CheckpointSaveOptions& options);

/// For a job of one rank.
Status save_state_dict(const LocalState& state, const std::string& folder,
                       const CheckpointSaveOptions& options = {});

}  // namespace millrace::io
