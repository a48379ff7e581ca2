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

/// Where instances come from.
struct MultiSlotSource {
  std::vector<std::string> files;  ///< plain, gzip or zstd; "-" is standard input
  std::vector<Slot> slots;
  int64_t batch_size = 1;
  int readers = 1;           ///< threads that read; never more than files
  size_t batches_ahead = 4;  ///< of each reader
};

/// Batches of instances from files, read ahead by threads of its own: a QueueDataset.
///
/// Reader r takes files r, r + readers, ... and batches of the readers come in turn, so the order
/// depends on the files and the number of readers only. Every line is in exactly one batch. A
/// reader's last batch may be short. Thread-safety: one caller.
class MultiSlotReader {
 public:
  explicit MultiSlotReader(MultiSlotSource source);
  MultiSlotReader(const MultiSlotReader&) = delete;
  MultiSlotReader& operator=(const MultiSlotReader&) = delete;
  ~MultiSlotReader();

  /// Replaces `batch` by the next one, whose memory readers use again; no rows at the end.
  /// Errors: with file and line, those of parse_multi_slot_line() and of the files. They come where
  /// the batch would have come.
  Status next(SlotRows& batch);
  /// Seconds that next() has waited for readers.
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
