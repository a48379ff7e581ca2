#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "framework/base/status.h"
#include "io/checkpoint/file_calls.h"
#include "io/checkpoint/gather.h"
#include "io/checkpoint/spread_checkpoint.h"

/// A root folder of checkpoints, with one sub-folder `step-<n>` each, on disks that not every rank
/// can access. Every function must be called on every rank.
namespace millrace::io {

/// A checkpoint in a root folder, as seen by all ranks together.
struct SpreadEntry {
  int64_t step = 0;
  bool complete = false;  ///< at least one rank has the manifest
};

/// The steps that any rank has, in increasing order. Errors: kIo on any rank; kDistributed.
StatusOr<std::vector<SpreadEntry>> list_spread_checkpoints(
    const std::string& root, Gather& gather, const std::shared_ptr<FileCalls>& calls = nullptr);

/// The result of open_last_spread_checkpoint().
struct LastSpreadCheckpoint {
  int64_t step = 0;
  SpreadCheckpoint checkpoint;
  std::vector<Status> skipped;  ///< why newer checkpoints were not used, newest first
};
/// open_last_checkpoint() for ranks that load together. Errors: as there; kDistributed.
StatusOr<LastSpreadCheckpoint> open_last_spread_checkpoint(const std::string& root, Gather& gather,
                                                           bool verify = true,
                                                           const SpreadLoadOptions& options = {});

/// collect_garbage() for ranks with separate disks. A checkpoint that is complete on one rank is
/// complete for all. Manifests are removed first, on all disks. Errors: kInvalidArgument for a keep
/// below 1; kIo on any rank; kDistributed.
Status collect_spread_garbage(const std::string& root, int keep, Gather& gather,
                              const std::shared_ptr<FileCalls>& calls = nullptr);

}  // namespace millrace::io
