#include "jobs/run/epoch.h"

#include <chrono>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "jobs/stats/step_facts.h"

namespace millrace::jobs {
namespace {

using executor::NamedValues;
using Seconds = std::chrono::duration<double>;

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

}  // namespace

StatusOr<EpochResult> run_epoch(SlotData& data, const EpochOptions& options, const RunBatch& run) {
  const auto start = std::chrono::steady_clock::now();
  const double waited = data.waited_s();
  EpochResult result;
  FetchMeans means;
  NamedValues feeds;
  MILLRACE_RETURN_IF_ERROR(data.restart());
  for (int64_t batch = 0;; ++batch) {
    MILLRACE_ASSIGN_OR_RETURN(const int64_t examples, data.next(feeds));
    if (examples == 0) break;
    if (batch < options.first_batch) continue;
    if (Status status = run(batch, feeds, result.last); !status.ok())
      return std::move(status).with_note(fmt::format("in batch {} of the data set", batch));
    ++result.batches;
    result.examples += examples;
    means.add(options.fetches, result.last, examples);
    if (options.print && options.print_period > 0 && (batch + 1) % options.print_period == 0)
      MILLRACE_RETURN_IF_ERROR(options.print({batch + 1, examples, &result.last}));
  }
  result.left_out = data.dropped();
  result.means = means.means();
  result.wait_seconds = data.waited_s() - waited;
  result.seconds = Seconds(std::chrono::steady_clock::now() - start).count();
  return result;
}

}  // namespace millrace::jobs
