#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "framework/base/status.h"
#include "io/checkpoint/checkpoint.h"
#include "io/checkpoint/gather.h"

/// Reading checkpoints whose files lie on disks that not every rank can see.
namespace millrace::io {

/// How ranks load together.
struct SpreadLoadOptions {
  CheckpointLoadOptions load;
  /// Bytes that a rank sends in one exchange, to all others together; a block for each is the
  /// least.
  uint64_t max_sent_bytes = uint64_t{16} << 20U;
};

/// A checkpoint that the ranks of a job read together: each reads the files that it sees itself,
/// and gets blocks of others from a rank that sees those, which reads them once for it. Which ranks
/// wrote the checkpoint, and how many, does not matter; a folder that all of them see works, too,
/// and then nothing is sent.
///
/// Every function is a call on every rank, in the same order; where one fails all do. Bytes are
/// compared with their checksums by the rank that uses them. Not thread-safe.
class SpreadCheckpoint {
 public:
  /// Finds out who sees what. Ranks without manifest get it from the others; of two, which a save
  /// that was cut off may leave where it replaced a checkpoint, the newer one counts.
  ///
  /// \param folder  of this rank; it need not be there  \param gather  must outlive the object
  /// Errors: kNotFound if no rank has the manifest, or one of its files is on no rank's disk;
  /// kDistributed for ranks that do not come; those of Checkpoint::open().
  static StatusOr<SpreadCheckpoint> open(const std::string& folder, Gather& gather,
                                         const SpreadLoadOptions& options = {});

  [[nodiscard]] const Manifest& manifest() const { return local_.manifest(); }
  [[nodiscard]] const std::string& folder() const { return local_.folder(); }

  /// Fills the targets of all ranks or of none; each rank has its own.
  /// Errors: those of io::load_state_dict() on any rank; kDistributed.
  Status load_state_dict(const std::vector<LoadTarget>& targets,
                         const LoadStateOptions& options = {});
  /// A record; each rank may ask for another one. Errors: as Checkpoint::load_record().
  StatusOr<std::string> load_record(std::string_view name, int32_t rank);
  /// Compares every byte: each file by the first rank that sees it. \returns what is wrong with all
  /// of them, the same on every rank.
  StatusOr<std::vector<Status>> verify();

  /// Bytes that this rank has got from others, and sent to them.
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
  std::vector<std::vector<int32_t>> holders_;  ///< ranks that see a file, by file
  uint64_t received_ = 0;
  uint64_t sent_ = 0;
};

}  // namespace millrace::io
