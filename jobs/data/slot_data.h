#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <llvm/ADT/ArrayRef.h>

#include "executor/collective/collective_group.h"
#include "executor/executor.h"
#include "framework/base/status.h"
#include "framework/program.h"
#include "io/multi_slot/reader.h"
#include "jobs/data/feed_options.h"

namespace millrace::jobs {

/// Reads the description of the fields of a line from a file. Errors: those of io::parse_slots(),
/// with the file.
StatusOr<io::SlotsFile> read_slots(const std::string& path, const Program& program);

/// Examples in files of MultiSlot or delimited text: read during training (queue), or read in
/// advance and shuffled (memory). Feeds have the same form as those of the original's data feeds:
/// dense slots are [rows, dims...], others [values, 1] with one level of LoD.
class SlotData {
 public:
  /// Finds the files and reads the slots; with FeedOptions::in_memory also the examples.
  /// Errors: kUsage, also for a file that is listed twice, for standard input where it would have
  /// to be read again, and for a pipe_command that FeedOptions do not allow; kNotFound for a
  /// pattern without files; kInvalidData for files without examples, unless trainers divide them;
  /// those of the readers.
  static StatusOr<std::unique_ptr<SlotData>> open(const FeedOptions& options,
                                                  const Program& program);
  /// The same for slots that are known, and without reading examples: load() does.
  static StatusOr<std::unique_ptr<SlotData>> find(const FeedOptions& options, io::SlotsFile slots);

  /// True if batches have this var.
  [[nodiscard]] bool has(const std::string& name) const;
  /// Number of batches of the whole run; -1 if only the end of the files determines it, and for
  /// more than a million epochs with FeedOptions::reshuffle_epochs.
  [[nodiscard]] int64_t steps() const;
  [[nodiscard]] int64_t epochs() const { return epochs_; }
  /// Epoch of the last batch, from 1.
  [[nodiscard]] int64_t epoch() const { return epoch_; }
  /// Puts the next batch into `feeds`. \returns its number of examples; 0: there are no more
  StatusOr<int64_t> next(executor::NamedValues& feeds);
  /// Restarts from the first batch, in the order of the first epoch. Errors: kUnimplemented for
  /// standard input that is not in memory.
  Status rewind();
  /// The same, but keeps the order of shuffle(). Errors: also kInvalidArgument if examples in
  /// memory have not been read.
  Status restart();
  /// Memory: reads the examples, replacing earlier ones. Errors: those of open() and the readers;
  /// there are then no examples in memory.
  Status load();
  /// Memory: drops the examples.
  void release();
  /// Memory: permutes the examples; the n-th call has the order of epoch n with
  /// FeedOptions::shuffle. A restart must follow.
  void shuffle();
  /// The same for the examples of all trainers: with FeedOptions::reshuffle_epochs the n-th call
  /// reads the share of epoch n. Errors: those of load(); there are then no examples in memory.
  Status shuffle_all();
  /// Memory: shuffles the examples of all ranks, which each have read files of their own: after it
  /// each example is on one rank, and numbers of examples differ by at most one. All ranks must
  /// call it, in the same order. Errors: those of exchange_rows().
  Status exchange(executor::CollectiveGroup& ranks);
  /// Memory: true after load().
  [[nodiscard]] bool is_loaded() const { return loaded_; }
  /// Memory: number of examples.
  [[nodiscard]] int64_t loaded_rows() const { return in_memory_ ? rows_.rows : 0; }
  [[nodiscard]] bool in_memory() const { return in_memory_; }
  /// Examples of this epoch and earlier ones that were left out because their batch was not full.
  [[nodiscard]] int64_t dropped() const;
  /// A remark for the log if trainers divide the files and none of the examples is for this one;
  /// otherwise empty. Known after the first epoch.
  [[nodiscard]] std::string remark() const;
  /// Seconds that training has waited for files.
  [[nodiscard]] double waited_s() const;

 private:
  SlotData() = default;
  Status find_files(const FeedOptions& options);
  Status set_up(const FeedOptions& options, io::SlotsFile slots);
  Status divide_files(const FeedOptions& options);
  Status check_epoch() const;
  void start_reader();
  Status read_all();
  Status read_share(int64_t epoch);
  Status check_rows(const std::vector<int64_t>& rows);
  [[nodiscard]] int64_t steps_of(int64_t rows) const;
  Status read_batch();
  StatusOr<int64_t> next_of_queue(executor::NamedValues& feeds);
  StatusOr<int64_t> next_of_memory(executor::NamedValues& feeds);
  Status begin_epoch();
  Status fill(const io::SlotRows& from, llvm::ArrayRef<int64_t> rows,
              executor::NamedValues& feeds) const;

  io::MultiSlotSource source_;
  int64_t epochs_ = 1;
  int64_t epoch_ = 1;
  bool shuffle_ = true;
  uint64_t seed_ = 0;
  bool in_memory_ = false;
  bool drop_last_ = false;
  bool divided_ = false;
  bool from_stdin_ = false;
  bool stdin_read_ = false;                      ///< it cannot be read again
  bool loaded_ = false;                          ///< memory
  int64_t shuffles_ = 0;                         ///< calls of shuffle() since load()
  bool reshuffle_ = false;                       ///< another share in every epoch
  int64_t share_epoch_ = 0;                      ///< memory: epoch whose share is in rows_
  std::vector<int64_t> lines_;                   ///< memory, with reshuffle_: of each file
  std::map<std::string, int64_t> rows_of_;       ///< Arrow: of each stream, from the first pass on
  int64_t dropped_ = 0;                          ///< queue: so far; memory: in earlier epochs
  int64_t read_ = 0;                             ///< examples of this epoch
  std::string source_name_;                      ///< the first file, for messages
  std::unique_ptr<io::MultiSlotReader> reader_;  ///< queue
  double waited_s_ = 0;                          ///< of readers of earlier epochs
  io::SlotRows rows_;                            ///< memory: all; queue: the last batch
  std::vector<int64_t> order_;                   ///< of rows_ in this epoch; queue: 0, 1, ...
  size_t at_ = 0;                                ///< next position in order_
};

}  // namespace millrace::jobs
