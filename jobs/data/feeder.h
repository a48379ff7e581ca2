#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "executor/executor.h"
#include "framework/program.h"
#include "jobs/data/data_set.h"
#include "jobs/data/feed_options.h"
#include "jobs/data/slot_data.h"

namespace millrace::jobs {

/// Feeds for the steps of a run: always the same values (--feed), separate values for each step
/// (--feed-steps), or batches of examples (--data, --files), shuffled again in every epoch.
class Feeder {
 public:
  /// Errors: kUsage for options that exclude each other, and for a value in all steps that every
  /// step replaces; those of the readers.
  static StatusOr<Feeder> open(const FeedOptions& options, const Program& program);

  /// Number of steps of the whole run; 0 if only the end of the files determines it.
  [[nodiscard]] int64_t steps() const { return steps_; }
  /// True if the run is known to end before this step, without reading its feeds.
  [[nodiscard]] bool ends_at(int64_t step) const { return steps_ > 0 && step >= steps_; }
  /// True if each step has separate feeds, so that results are named by step.
  [[nodiscard]] bool has_step_feeds() const { return !step_feeds_.empty(); }
  /// True if steps are fed with batches of examples.
  [[nodiscard]] bool has_data() const { return data_.has_value() || slots_ != nullptr; }
  [[nodiscard]] int64_t epochs() const { return has_data() ? epochs_ : 0; }
  /// Epoch of the last fed step, or of any step with --data; counted from 1, 0 without examples.
  [[nodiscard]] int64_t epoch(int64_t step) const;
  /// Examples fed up to now; 0 without --data and --files.
  [[nodiscard]] int64_t examples() const { return examples_; }

  /// Number of examples in the feeds of the last step; 0 without --data and --files.
  [[nodiscard]] int64_t step_examples() const { return step_examples_; }

  /// Feeds of a step; valid until the next call. Null: the files have ended. Steps must be
  /// requested in order, starting at 0 or at the step of go_to().
  StatusOr<const executor::NamedValues*> feeds(int64_t step);
  /// Sets the next step that will be requested. Errors: those of the files.
  Status go_to(int64_t step);
  /// Ends the run after this many steps; 0 changes nothing.
  void limit_steps(int64_t limit);
  /// What the log should say about the examples after the last step, empty if nothing: how many
  /// were left out, and whether none was for this trainer.
  [[nodiscard]] std::string remark() const;
  /// Seconds that steps waited for files.
  [[nodiscard]] double waited_s() const { return slots_ == nullptr ? 0 : slots_->waited_s(); }

 private:
  [[nodiscard]] Status check_replaced() const;
  Status open_data(const FeedOptions& options, const Program& program);
  void shuffle(int64_t epoch);
  void swap_step();

  executor::NamedValues fixed_;
  int64_t fed_ = -1;  ///< step whose feeds from step_feeds_ are in fixed_; negative: none
  std::vector<executor::NamedValues> step_feeds_;
  std::optional<DataSet> data_;
  std::unique_ptr<SlotData> slots_;  ///< --files
  std::vector<int64_t> rows_;        ///< --data: those of this trainer
  std::vector<int64_t> order_;       ///< the same in the order of this epoch
  int64_t steps_ = 1;
  int64_t epochs_ = 0;
  int64_t steps_per_epoch_ = 0;
  int64_t batch_size_ = 1;
  int64_t examples_ = 0;
  int64_t step_examples_ = 0;
  uint64_t seed_ = 0;
  bool shuffle_ = true;
  int64_t dropped_ = 0;  ///< examples of --data that each epoch leaves out
};

/// Members "stepK/<var>" grouped by step; those of additional steps are dropped.
/// \param file  source of the members, for messages
/// Errors: kInvalidData for other names, and for too few steps.
StatusOr<std::vector<executor::NamedValues>> split_steps(executor::NamedValues&& members,
                                                         int64_t steps, const std::string& file);

}  // namespace millrace::jobs
