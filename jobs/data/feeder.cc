#include "jobs/data/feeder.h"

#include <algorithm>
#include <string>

#include <fmt/format.h>
#include <llvm/ADT/STLExtras.h>
#include <llvm/ADT/StringRef.h>

#include "framework/base/errors.h"
#include "io/npz.h"
#include "jobs/data/feed_files.h"
#include "jobs/data/shuffle.h"

namespace millrace::jobs {
namespace {

using executor::NamedValues;

constexpr int64_t kBatchSize = 64;  // of --data

}  // namespace

StatusOr<std::vector<NamedValues>> split_steps(NamedValues&& members, int64_t steps,
                                               const std::string& file) {
  std::vector<NamedValues> result;
  for (auto& [name, value] : members) {
    const auto [head, rest] = llvm::StringRef(name).split('/');
    size_t step = 0;
    if (!head.startswith("step") || head.drop_front(4).getAsInteger(10, step) || rest.empty() ||
        step > 100'000'000 || head.drop_front(4) != std::to_string(step)) {
      return InvalidData("member '{}': expected a name like step0/x", name).in_file(file);
    }
    if (step >= static_cast<size_t>(steps)) continue;
    if (step >= result.size()) result.resize(step + 1);
    result[step][rest.str()] = std::move(value);
  }
  if (result.size() < static_cast<size_t>(steps)) {
    return InvalidData("expected members for {} steps, found members for {}", steps, result.size())
        .in_file(file);
  }
  return result;
}

// A value that is the same in all steps, and that every step replaces by another one.
Status Feeder::check_replaced() const {
  for (const auto& [name, value] : fixed_) {
    const char* by = nullptr;
    if (has_step_feeds() && llvm::all_of(step_feeds_, [&, &key = name](const NamedValues& feeds) {
          return feeds.contains(key);
        }))
      by = "options.steps_file";
    if (data_ && data_->has(name)) by = "options.data";
    if (slots_ != nullptr && slots_->has(name)) by = "options.files";
    if (by != nullptr)
      return {
          StatusCode::kUsage,
          fmt::format("options.values: '{}' has no effect: every step has it from {}", name, by)};
  }
  return Ok();
}

StatusOr<Feeder> Feeder::open(const FeedOptions& options, const Program& program) {
  Feeder feeder;
  feeder.seed_ = options.seed;
  feeder.steps_ = options.steps;
  MILLRACE_ASSIGN_OR_RETURN(feeder.fixed_, read_feeds(options, program));
  const int sources = static_cast<int>(!options.data.empty()) +
                      static_cast<int>(!options.steps_file.empty()) +
                      static_cast<int>(!options.files.empty());
  if (sources > 1)
    return Status(StatusCode::kUsage,
                  "expected only one of options.data, options.files and options.steps_file");
  if (!options.steps_file.empty()) {
    MILLRACE_ASSIGN_OR_RETURN(NamedValues all, io::read_values(options.steps_file));
    if (options.in_float64) MILLRACE_RETURN_IF_ERROR(widen_values(all));
    MILLRACE_ASSIGN_OR_RETURN(feeder.step_feeds_,
                              split_steps(std::move(all), options.steps, options.steps_file));
  }
  if (!options.files.empty()) {
    MILLRACE_ASSIGN_OR_RETURN(feeder.slots_, SlotData::open(options, program));
    feeder.epochs_ = options.epochs;
    feeder.steps_ = std::max<int64_t>(feeder.slots_->steps(), 0);
    feeder.limit_steps(options.max_steps);
    MILLRACE_RETURN_IF_ERROR(feeder.check_replaced());
    return feeder;
  }
  if (options.data.empty()) {
    feeder.limit_steps(options.max_steps);
  } else {
    MILLRACE_RETURN_IF_ERROR(feeder.open_data(options, program));
  }
  MILLRACE_RETURN_IF_ERROR(feeder.check_replaced());
  return feeder;
}

Status Feeder::open_data(const FeedOptions& options, const Program& program) {
  if (options.divide == Divide::kFiles)
    return {StatusCode::kUsage, "options.divide: options.data is one file, divide its examples"};
  if (options.reshuffle_epochs)
    return {StatusCode::kUsage, "options.reshuffle_epochs: expected options.files"};
  MILLRACE_ASSIGN_OR_RETURN(data_, DataSet::read(options.data, options.columns, program));
  const bool divided = options.divide == Divide::kExamples;
  const io::LineShare share{options.trainer, divided ? options.trainers : 1};
  for (int64_t row = 0; row < data_->rows(); ++row)
    if (share.has(0, row)) rows_.push_back(row);
  const auto rows = static_cast<int64_t>(rows_.size());
  if (rows == 0)
    return InvalidData("found {} examples for {} trainers, none for this one", data_->rows(),
                       options.trainers)
        .in_file(options.data);
  batch_size_ = options.batch_size > 0 ? options.batch_size : kBatchSize;
  epochs_ = options.epochs;
  dropped_ = options.drop_last ? rows % batch_size_ : 0;
  if (dropped_ == rows)
    return InvalidData("found only {} examples, no batch of {} is full", rows, batch_size_)
        .in_file(options.data);
  steps_per_epoch_ = (rows - dropped_ + batch_size_ - 1) / batch_size_;
  steps_ = steps_per_epoch_ * options.epochs;
  limit_steps(options.max_steps);
  shuffle_ = options.shuffle;
  order_ = rows_;
  return Ok();
}

std::string Feeder::remark() const {
  const int64_t dropped = slots_ != nullptr   ? slots_->dropped()
                          : data_.has_value() ? dropped_ * epochs_
                                              : 0;
  if (dropped > 0) return fmt::format("left out {} examples of batches that are not full", dropped);
  return slots_ == nullptr ? std::string() : slots_->remark();
}

int64_t Feeder::epoch(int64_t step) const {
  if (slots_ != nullptr) return slots_->epoch();
  return has_data() ? step / steps_per_epoch_ + 1 : 0;
}

void Feeder::limit_steps(int64_t limit) {
  if (limit > 0 && (steps_ == 0 || steps_ > limit)) steps_ = limit;
}

// Swaps the feeds of a step in or out; they are kept, because the step may be requested again.
void Feeder::swap_step() {
  if (fed_ < 0) return;
  for (auto& [name, value] : step_feeds_[static_cast<size_t>(fed_)]) std::swap(fixed_[name], value);
}

// Starts from the order of the previous epoch.
void Feeder::shuffle(int64_t epoch) {
  if (shuffle_) shuffle_rows(order_, seed_, epoch);
}

Status Feeder::go_to(int64_t step) {
  if (slots_ != nullptr) {
    MILLRACE_RETURN_IF_ERROR(slots_->rewind());
    examples_ = 0;
    for (int64_t past = 0; past < step; ++past) MILLRACE_RETURN_IF_ERROR(feeds(past).status());
    return Ok();
  }
  if (!has_data()) return Ok();
  order_ = rows_;
  const int64_t in_epoch = step % steps_per_epoch_;
  for (int64_t past = 1; past < epoch(step); ++past) shuffle(past);
  if (in_epoch > 0) shuffle(epoch(step));
  examples_ =
      (epoch(step) - 1) * (static_cast<int64_t>(rows_.size()) - dropped_) + in_epoch * batch_size_;
  return Ok();
}

StatusOr<const NamedValues*> Feeder::feeds(int64_t step) {
  if (has_step_feeds()) {
    swap_step();
    fed_ = step;
    swap_step();
    return &fixed_;
  }
  if (slots_ != nullptr) {
    MILLRACE_ASSIGN_OR_RETURN(step_examples_, slots_->next(fixed_));
    examples_ += step_examples_;
    return step_examples_ > 0 ? &fixed_ : nullptr;
  }
  if (!has_data()) return &fixed_;
  const int64_t in_epoch = step % steps_per_epoch_;
  if (in_epoch == 0) shuffle(epoch(step));
  const auto begin = static_cast<size_t>(in_epoch * batch_size_);
  const size_t count = std::min(static_cast<size_t>(batch_size_), order_.size() - begin);
  MILLRACE_ASSIGN_OR_RETURN(NamedValues batch,
                            data_->batch(llvm::ArrayRef(order_).slice(begin, count)));
  for (auto& [name, value] : batch) fixed_[name] = std::move(value);
  step_examples_ = static_cast<int64_t>(count);
  examples_ += step_examples_;
  return &fixed_;
}

}  // namespace millrace::jobs
