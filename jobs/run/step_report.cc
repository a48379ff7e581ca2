#include "jobs/run/step_report.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <llvm/ADT/StringExtras.h>

#include "executor/feed_targets.h"
#include "jobs/stats/fetches_line.h"
#include "jobs/stats/step_facts.h"

namespace millrace::jobs {
namespace step_report {

using executor::NamedValues;

// A fetched var that no op has written (an output that only a gradient reads, a branch that was not
// taken) is missing in the output file.
void warn_of_absent(const LogSink& log, const NamedValues& values) {
  for (const auto& [name, value] : values) {
    if (value.initialized()) continue;
    log(LogLevel::kWarning,
        fmt::format("fetch '{}': no op has written it in the first step", name));
  }
}

// Warns of feeds from a file for which the program has no var.
void warn_of_unread(const LogSink& log, const Session& session, const NamedValues& feeds) {
  std::vector<llvm::StringRef> unread;
  for (const auto& [name, value] : feeds)
    if (session.program().root().find_var(name) == nullptr) unread.push_back(name);
  if (unread.empty()) return;
  log(LogLevel::kWarning, fmt::format("the program has no var for these feeds: {} (it is fed {})",
                                      llvm::join(unread, ", "),
                                      llvm::join(executor::feeds_of(session.program()), ", ")));
}

}  // namespace step_report

StepReport::StepReport(const Session& session, const Feeder& feeder, const StepsOptions& options)
    : session_(session), feeder_(feeder), options_(options) {
  state_.steps = feeder.steps();
  state_.epochs = feeder.epochs();
}

void StepReport::begin() {
  if (options_.progress != nullptr) options_.progress->begin();
}

std::optional<double> StepReport::note(int64_t step, const executor::NamedValues& feeds,
                                       const executor::NamedValues& values) {
  if (!std::exchange(began_, true)) {
    step_report::warn_of_unread(options_.log, session_, feeds);
    step_report::warn_of_absent(options_.log, values);
  }
  if (options_.print_period > 0 && (step + 1) % options_.print_period == 0)
    options_.log(LogLevel::kInfo, fetches_line(step + 1, options_.fetches, values));
  state_.step = std::max(state_.step, step + 1);
  state_.epoch = feeder_.epoch(step);
  state_.examples = feeder_.examples();
  const auto first =
      options_.fetches.empty() ? values.end() : values.find(options_.fetches.front());
  const int devices = session_.parallel == nullptr ? 1 : session_.parallel->device_count();
  state_.loss = first == values.end() ? std::nullopt : loss_of(first->second, devices);
  if (options_.progress != nullptr) options_.progress->update(state_);
  return state_.loss;
}

void StepReport::end() {
  if (options_.progress != nullptr && feeder_.steps() != 1) options_.progress->finish(state_);
  if (const std::string remark = feeder_.remark(); !remark.empty())
    options_.log(LogLevel::kWarning, remark);
  if (feeder_.waited_s() > 0)
    options_.log(LogLevel::kInfo,
                 fmt::format("steps waited {:.3f} s for examples", feeder_.waited_s()));
}

}  // namespace millrace::jobs
