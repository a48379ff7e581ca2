#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "framework/base/status.h"
#include "io/multi_slot/arrow_rows.h"
#include "io/multi_slot/cells.h"
#include "io/multi_slot/line.h"
#include "io/multi_slot/line_share.h"
#include "io/multi_slot/slots.h"

namespace millrace::io {

/// The input of a MultiSlotReader.
struct MultiSlotSource {
  std::vector<std::string> files;  ///< plain, gzip or zstd; "-" is standard input
  /// With TextFormat::arrow: streams by their name, in place of files; rows are their lines.
  std::map<std::string, ArrowOpener> streams;
  std::string pipe_command;  ///< through which each file is sent; empty: none
  TextFormat format;
  std::vector<Slot> slots;
  /// Delimited text with slots that have a min_count: count_values(). Otherwise null.
  std::shared_ptr<const ValueCounts> counts;
  LineShare share;  ///< the lines that are read; lines of other trainers are skipped
  int64_t batch_size = 1;
  int readers = 1;           ///< number of reader threads; limited to the number of files
  size_t batches_ahead = 4;  ///< queued batches per reader
};

/// Counts the values of slots with a min_count in all lines of the files, also those of other
/// trainers. Null if there are no such slots.
/// \param lines  receives the number of lines of each file, if there are such slots; may be null
/// Errors, with file and line: those of DelimitedLines::count() and of the files.
StatusOr<std::shared_ptr<const ValueCounts>> count_values(const MultiSlotSource& source,
                                                          std::vector<int64_t>* lines = nullptr);

/// Batches of instances from files, read ahead by background threads: a QueueDataset.
///
/// Reader r reads files r, r + readers, ..., and batches are taken from the readers in turn, so the
/// order depends only on the files and the number of readers. Every line of the share is in exactly
/// one batch. The last batch of a reader may be short. Thread-safety: one caller.
class MultiSlotReader {
 public:
  explicit MultiSlotReader(MultiSlotSource source);
  MultiSlotReader(const MultiSlotReader&) = delete;
  MultiSlotReader& operator=(const MultiSlotReader&) = delete;
  ~MultiSlotReader();

  /// Replaces `batch` by the next one; readers reuse its old memory. At the end the batch has no
  /// rows.
  /// Errors, with file and line: those of parse_multi_slot_line() and of the files. An error is
  /// returned at the position of the batch that could not be read, also by later calls; the lines
  /// of that reader from there on are lost. kResource if memory or a thread was not available.
  Status next(SlotRows& batch);
  /// Number of lines of each file, also of those of other trainers, without headers. Complete when
  /// next() has returned a batch without rows.
  [[nodiscard]] const std::vector<int64_t>& lines() const { return lines_; }
  /// Total seconds that next() has waited for readers.
  [[nodiscard]] double waited_s() const { return waited_s_; }

 private:
  struct Lane;
  void read_in_thread(Lane& lane, size_t first);
  void read_files(Lane& lane, size_t first);

  MultiSlotSource source_;
  std::vector<int64_t> lines_;  ///< by file; each is written by one reader before it ends
  std::vector<std::unique_ptr<Lane>> lanes_;
  size_t turn_ = 0;
  double waited_s_ = 0;
};

}  // namespace millrace::io
