#include "jobs/run/epoch.h"

#include <chrono>
#include <mutex>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "framework/base/errors.h"
#include "jobs/data/run_workers.h"
#include "jobs/stats/step_facts.h"

namespace millrace::jobs {
namespace {

using executor::NamedValues;

// Sums of the fetches that are one number.
class FetchMeans {
 public:
  void add(const std::vector<std::string>& fetches, const NamedValues& values, int64_t examples) {
    const auto weight = static_cast<double>(examples);
    for (const std::string& name : fetches) {
      const auto found = values.find(name);
      const std::optional<double> number =
          found == values.end() ? std::nullopt : loss_of(found->second);
      Sum& sum = sums_[name];
      sum.complete = sum.complete && number.has_value();
      sum.total += number.value_or(0) * weight;
    }
    weight_ += weight;
  }
  [[nodiscard]] std::map<std::string, double> means() const {
    std::map<std::string, double> means;
    for (const auto& [name, sum] : sums_)
      if (sum.complete) means[name] = sum.total / weight_;
    return means;
  }

 private:
  struct Sum {
    double total = 0;
    bool complete = true;  ///< it was a number in every batch
  };
  std::map<std::string, Sum> sums_;
  double weight_ = 0;
};

// A pass that several threads share.
class EpochLoop {
 public:
  EpochLoop(SlotData& data, const EpochOptions& options, const RunBatch& run)
      : data_(data), options_(options), run_(run) {}

  // Runs batches until there are no more.
  Status work(int worker);
  void stop() {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  // Errors: the epoch ended before its first batch.
  StatusOr<EpochResult> take_result() {
    const int64_t batches = next_ - 1;  // the last read found none
    if (batches < options_.first_batch)
      return InvalidArgument(
          "options.first_batch: expected at most {}, the batches of the epoch, "
          "found {}",
          batches, options_.first_batch);
    result_.left_out = data_.dropped();
    result_.means = means_.means();
    return std::move(result_);
  }

 private:
  // Reads the next batch that is run. \returns its number of examples; 0: there are no more
  StatusOr<int64_t> take(NamedValues& feeds, int64_t& batch);
  Status note(int64_t examples, NamedValues& values);

  SlotData& data_;
  const EpochOptions& options_;
  const RunBatch& run_;
  std::mutex mutex_;  ///< guards what follows, and data_
  bool ended_ = false;
  bool refused_ = false;  ///< `print` has ended the pass
  int64_t next_ = 0;
  EpochResult result_;
  FetchMeans means_;
};

StatusOr<int64_t> EpochLoop::take(NamedValues& feeds, int64_t& batch) {
  const std::lock_guard lock(mutex_);
  while (!ended_) {
    MILLRACE_ASSIGN_OR_RETURN(const int64_t examples, data_.next(feeds));
    ended_ = examples == 0;
    batch = next_++;
    if (!ended_ && batch >= options_.first_batch) return examples;
  }
  return int64_t{0};
}

Status EpochLoop::note(int64_t examples, NamedValues& values) {
  const std::lock_guard lock(mutex_);
  ++result_.batches;
  result_.examples += examples;
  means_.add(options_.fetches, values, examples);
  std::swap(result_.last, values);
  const int64_t done = options_.first_batch + result_.batches;
  if (!options_.print || options_.print_period == 0 || done % options_.print_period != 0)
    return Ok();
  if (refused_) return Ok();  // by a call of another worker
  Status status = options_.print({done, examples, &result_.last});
  refused_ = !status.ok();
  return status;
}

Status EpochLoop::work(int worker) {
  NamedValues feeds;
  NamedValues values;
  while (true) {
    int64_t batch = 0;
    MILLRACE_ASSIGN_OR_RETURN(const int64_t examples, take(feeds, batch));
    if (examples == 0) return Ok();
    if (Status status = run_(worker, batch, feeds, values); !status.ok())
      return std::move(status).with_note(fmt::format("in batch {} of the data set", batch));
    MILLRACE_RETURN_IF_ERROR(note(examples, values));
  }
}

}  // namespace

StatusOr<EpochResult> run_epoch(SlotData& data, const EpochOptions& options, const RunBatch& run,
                                const EpochWorkers& workers) {
  const auto start = std::chrono::steady_clock::now();
  const double waited = data.waited_s();
  MILLRACE_RETURN_IF_ERROR(data.restart());
  EpochLoop loop(data, options, run);
  MILLRACE_RETURN_IF_ERROR(run_workers(workers.count, {.work = [&](int w) { return loop.work(w); },
                                                       .leave = workers.leave,
                                                       .stop = [&] { loop.stop(); }}));
  MILLRACE_ASSIGN_OR_RETURN(EpochResult result, loop.take_result());
  result.wait_seconds = data.waited_s() - waited;
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return result;
}

}  // namespace millrace::jobs
