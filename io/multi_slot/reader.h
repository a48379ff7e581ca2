#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "framework/base/status.h"
#include "io/multi_slot/line.h"
#include "io/multi_slot/slots.h"

namespace millrace::io {

/// The input of a MultiSlotReader.
struct MultiSlotSource {
  std::vector<std::string> files;  ///< plain, gzip or zstd; "-" is standard input
  std::vector<Slot> slots;
  int64_t batch_size = 1;
  int readers = 1;           ///< number of reader threads; limited to the number of files
  size_t batches_ahead = 4;  ///< queued batches per reader
};

/// Batches of instances from files, read ahead by background threads: a QueueDataset.
///
/// Reader r reads files r, r + readers, ..., and batches are taken from the readers in turn, so the
/// order depends only on the files and the number of readers. Every line is in exactly one batch.
/// The last batch of a reader may be short. Thread-safety: one caller.
class MultiSlotReader {
 public:
  explicit MultiSlotReader(MultiSlotSource source);
  MultiSlotReader(const MultiSlotReader&) = delete;
  MultiSlotReader& operator=(const MultiSlotReader&) = delete;
  ~MultiSlotReader();

  /// Replaces `batch` by the next one; readers reuse its old memory. At the end the batch has no
  /// rows.
  /// Errors, with file and line: those of parse_multi_slot_line() and of the files. An error is
  /// returned at the position of the batch that could not be read.
  Status next(SlotRows& batch);
  /// Total seconds that next() has waited for readers.
  [[nodiscard]] double waited_s() const { return waited_s_; }

 private:
  struct Lane;
  void read_files(Lane& lane, size_t first) const;

  MultiSlotSource source_;
  std::vector<std::unique_ptr<Lane>> lanes_;
  size_t turn_ = 0;
  double waited_s_ = 0;
};

}  // namespace millrace::io
