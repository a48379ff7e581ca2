#include "jobs/run/run_steps.h"

#include <cstdint>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <llvm/ADT/StringExtras.h>

#include "executor/feed_targets.h"
#include "jobs/run/checkpoints.h"
#include "jobs/stats/fetches_line.h"
#include "jobs/stats/step_facts.h"

namespace millrace::jobs {
namespace {

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

}  // namespace

StatusOr<StepsResult> run_steps(Session& session, Feeder& feeder, const StepsOptions& options,
                                StopTogether& stop) {
  StepsResult outcome;
  std::unique_ptr<StepDump> dump;
  if (options.dump.wanted()) {
    MILLRACE_ASSIGN_OR_RETURN(dump, StepDump::open(options.dump));
  }
  const std::vector<std::string> fetches =
      dump == nullptr ? options.fetches : dump->with(options.fetches);
  RunCheckpoints checkpoints(options.checkpoints, options.log);
  MILLRACE_RETURN_IF_ERROR(checkpoints.begin(session, options.observed));
  const bool prefixed = !feeder.has_data() && (feeder.steps() != 1 || feeder.has_step_feeds());
  ProgressState state;
  state.steps = feeder.steps();
  state.epochs = feeder.epochs();
  const int devices = session.parallel == nullptr ? 1 : session.parallel->device_count();
  NamedValues values;
  if (options.progress != nullptr) options.progress->begin();
  for (int64_t step = 0; !feeder.ends_at(step); ++step) {
    MILLRACE_ASSIGN_OR_RETURN(const NamedValues* const feeds, feeder.feeds(step));
    if (feeds == nullptr) break;
    if (step < session.first_step) continue;  // feeds of steps that the checkpoint has already done
    if (Status status = run_step(session, *feeds, fetches, values); !status.ok()) {
      status = std::move(status).in_file(session.name);
      return feeder.steps() != 1 ? std::move(status).with_note(fmt::format("in step {}", step))
                                 : status;
    }
    if (step == session.first_step) {
      warn_of_unread(options.log, session, *feeds);
      warn_of_absent(options.log, values);
    }
    const int64_t examples = feeder.has_data() ? feeder.step_examples() : batch_of(*feeds);
    if (dump != nullptr)
      MILLRACE_RETURN_IF_ERROR(dump->write(step, examples, options.fetches, values));
    if (options.print_period > 0 && (step + 1) % options.print_period == 0)
      options.log(LogLevel::kInfo, fetches_line(step + 1, options.fetches, values));
    state.step = step + 1;
    state.epoch = feeder.epoch(step);
    state.examples = feeder.examples();
    const auto first =
        options.fetches.empty() ? values.end() : values.find(options.fetches.front());
    state.loss = first == values.end() ? std::nullopt : loss_of(first->second, devices);
    if (state.loss) outcome.losses.push_back(*state.loss);
    if (options.progress != nullptr) options.progress->update(state);
    MILLRACE_RETURN_IF_ERROR(stop.after_step());
    const bool last = stop.signal() != 0;
    MILLRACE_RETURN_IF_ERROR(checkpoints.after_step(session, step + 1, last));
    if (last) break;
    if (!prefixed) continue;
    for (auto& [name, value] : values)
      outcome.results[fmt::format("step{}/", step) + name] = std::move(value);
  }
  if (!prefixed) outcome.results = std::move(values);
  MILLRACE_RETURN_IF_ERROR(checkpoints.finish());
  if (options.progress != nullptr && feeder.steps() != 1) options.progress->finish(state);
  if (const std::string remark = feeder.remark(); !remark.empty())
    options.log(LogLevel::kWarning, remark);
  if (feeder.waited_s() > 0)
    options.log(LogLevel::kInfo,
                fmt::format("steps waited {:.3f} s for examples", feeder.waited_s()));
  return outcome;
}

}  // namespace millrace::jobs
