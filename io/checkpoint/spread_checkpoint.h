#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "framework/base/status.h"
#include "io/checkpoint/checkpoint.h"
#include "io/checkpoint/gather.h"

/// Reading checkpoints whose files are on disks that not every rank can read.
namespace millrace::io {

/// Options for loading together.
struct SpreadLoadOptions {
  CheckpointLoadOptions load;
  /// Maximum bytes that a rank sends in one exchange, to all other ranks together; at least one
  /// block to each.
  uint64_t max_sent_bytes = uint64_t{16} << 20U;
};

/// A checkpoint that the ranks of a job read together. Each rank reads the files that it can access
/// itself and receives blocks of other files from a rank that can access those. It does not matter
/// which ranks wrote the checkpoint, or how many. A folder that all ranks can access works too;
/// nothing is sent then.
///
/// Every function must be called on every rank, in the same order; if it fails on one rank, it
/// fails on all. The rank that uses the bytes compares them with their checksums. Not thread-safe.
class SpreadCheckpoint {
 public:
  /// Finds out which rank can access which files. Ranks without manifest get it from the others. If
  /// there are two manifests, after an interrupted save that replaced a checkpoint, the newer one
  /// is used.
  ///
  /// \param folder  of this rank; it need not exist
  /// \param gather  must outlive the object
  /// Errors: kNotFound if no rank has the manifest, or if one of its files is on no rank's disk;
  /// kDistributed if a rank does not take part in time; those of Checkpoint::open().
  static StatusOr<SpreadCheckpoint> open(const std::string& folder, Gather& gather,
                                         const SpreadLoadOptions& options = {});

  [[nodiscard]] const Manifest& manifest() const { return local_.manifest(); }
  [[nodiscard]] const std::string& folder() const { return local_.folder(); }

  /// Fills the targets of all ranks or of none. Each rank passes its own targets.
  /// Errors: those of io::load_state_dict() on any rank; kDistributed.
  Status load_state_dict(const std::vector<LoadTarget>& targets,
                         const LoadStateOptions& options = {});
  /// Loads a record; each rank may ask for a different one. Errors: as Checkpoint::load_record().
  StatusOr<std::string> load_record(std::string_view name, int32_t rank);
  /// Compares every byte with its checksum. Each file is checked by the first rank that can access
  /// it.
  /// \returns all errors, the same on every rank
  StatusOr<std::vector<Status>> verify();

  /// Bytes that this rank has received from other ranks; sent_bytes(): sent to them.
  [[nodiscard]] uint64_t received_bytes() const { return received_; }
  [[nodiscard]] uint64_t sent_bytes() const { return sent_; }

 private:
  class Exchange;
  SpreadCheckpoint(Checkpoint local, Gather& gather, const SpreadLoadOptions& options)
      : local_(std::move(local)), gather_(&gather), max_sent_(options.max_sent_bytes) {}

  Status agree_on_manifest();
  Status find_files();
  Status read_together(Status mine, const std::vector<WantedBytes>& wanted);

  Checkpoint local_;
  Gather* gather_;
  uint64_t max_sent_;
  std::vector<std::vector<int32_t>> holders_;  ///< by file: the ranks that can access it
  uint64_t received_ = 0;
  uint64_t sent_ = 0;
};

}  // namespace millrace::io
