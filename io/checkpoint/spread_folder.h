#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "framework/base/status.h"
#include "io/checkpoint/file_calls.h"
#include "io/checkpoint/gather.h"
#include "io/checkpoint/spread_checkpoint.h"

/// A folder of checkpoints, one sub-folder `step-<n>` each, on disks that not every rank can see.
/// Every function is a call on every rank.
namespace millrace::io {

/// A step of a folder of checkpoints, seen by all ranks.
struct SpreadEntry {
  int64_t step = 0;
  bool complete = false;  ///< some rank has the manifest
};

/// The steps that any rank has, rising. Errors: kIo on any rank; kDistributed.
StatusOr<std::vector<SpreadEntry>> list_spread_checkpoints(
    const std::string& root, Gather& gather, const std::shared_ptr<FileCalls>& calls = nullptr);

/// Which checkpoint open_last_spread_checkpoint() took.
struct LastSpreadCheckpoint {
  int64_t step = 0;
  SpreadCheckpoint checkpoint;
  std::vector<Status> skipped;  ///< why newer ones were not taken, newest first
};
/// open_last_checkpoint() of ranks that load together. Errors: as there; kDistributed.
StatusOr<LastSpreadCheckpoint> open_last_spread_checkpoint(const std::string& root, Gather& gather,
                                                           bool verify = true,
                                                           const SpreadLoadOptions& options = {});

/// collect_garbage() of ranks with disks of their own: what one rank counts as complete is complete
/// for all. Manifests go first, on all disks. Errors: kInvalidArgument for keep < 1; kIo on any
/// rank; kDistributed.
Status collect_spread_garbage(const std::string& root, int keep, Gather& gather,
                              const std::shared_ptr<FileCalls>& calls = nullptr);

}  // namespace millrace::io
