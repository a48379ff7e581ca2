#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "framework/base/status.h"
#include "io/checkpoint/checkpoint.h"
#include "io/checkpoint/save.h"

namespace millrace::io {

/// The layout of the resharded checkpoint.
struct ReshardOptions {
  int32_t ranks = 1;         ///< >= 1
  int64_t axis = 0;          ///< axis to split dense tensors on; axis 0 for those of lower rank
  bool split_whole = false;  ///< also split tensors that were whole on every rank
  /// For tables. True: row r goes to rank r % ranks; false: adjacent rows stay together.
  bool rows_by_remainder = true;
  /// Bytes of tensor data held at a time; at least one block or one row.
  uint64_t max_memory_bytes = uint64_t{64} << 20U;
  CheckpointSaveOptions save;  ///< coordinator is 0
};

/// Writes the content of a checkpoint to a new checkpoint, split for another number of ranks. The
/// data files are those that this number of ranks would have written. Works as a stream: reads and
/// writes piece by piece, and verifies everything it reads. Records and notes are copied unchanged.
///
/// Memory: max_memory_bytes, the manifests, and 16 bytes for each row of the tables.
/// Errors: those of Checkpoint and save_state_dict(); kInvalidArgument for ranks < 1 or axis < 0.
Status reshard_checkpoint(const Checkpoint& from, const std::string& folder,
                          const ReshardOptions& options);

}  // namespace millrace::io
