#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "framework/base/status.h"
#include "io/checkpoint/checkpoint.h"
#include "io/checkpoint/save.h"

namespace millrace::io {

/// The layout that a checkpoint gets.
struct ReshardOptions {
  int32_t ranks = 1;       ///< >= 1
  int64_t axis = 0;        ///< that dense tensors are cut on; those of lower rank on axis 0
  bool cut_whole = false;  ///< also cuts tensors that were whole on every rank
  /// Rows of a table: row r goes to rank r % ranks; else neighbours stay together.
  bool rows_by_remainder = true;
  /// Bytes of tensor data held at a time; one block or one row is the least.
  uint64_t max_memory_bytes = uint64_t{64} << 20U;
  CheckpointSaveOptions save;  ///< coordinator is 0
};

/// Writes what a checkpoint holds once more, cut for another number of ranks; data files are those
/// that so many ranks would have written. Streams: reads and writes piece by piece, and verifies
/// all that it reads. Records and notes stay as they are.
///
/// Memory: max_memory_bytes, the manifests, and 16 bytes for each row of the tables.
/// Errors: those of Checkpoint and save_state_dict(); kInvalidArgument for ranks or axis below the
/// least.
Status reshard_checkpoint(const Checkpoint& from, const std::string& folder,
                          const ReshardOptions& options);

}  // namespace millrace::io
