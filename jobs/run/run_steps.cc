#include "jobs/run/run_steps.h"

#include <cstdint>
#include <map>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "executor/parallel/worker_programs.h"
#include "framework/base/errors.h"
#include "jobs/data/steps_in_turn.h"
#include "jobs/run/checkpoints.h"
#include "jobs/run/step_report.h"
#include "jobs/stats/step_facts.h"

namespace millrace::jobs {
namespace run_steps_of {

using executor::NamedValues;

int64_t examples_of(const Feeder& feeder, const NamedValues& feeds) {
  return feeder.has_data() ? feeder.step_examples() : batch_of(feeds);
}

Status in_step(const Session& session, const Feeder& feeder, int64_t step, Status status) {
  status = std::move(status).in_file(session.name);
  return feeder.steps() != 1 ? std::move(status).with_note(fmt::format("in step {}", step))
                             : status;
}

// What several threads that share variables cannot do.
Status check_workers(const Session& session, const Feeder& feeder, const StepsOptions& options) {
  if (session.prepared == nullptr)
    return Unimplemented("options.workers above 1 with several devices or processes");
  if (!feeder.has_data())
    return {StatusCode::kUsage, "options.workers: expected options.files or options.data"};
  if (options.checkpoints.save_every > 0 || session.first_step > 0)
    return Unimplemented("options.workers above 1 with checkpoints");
  if (options.observed) return Unimplemented("options.workers above 1 with records of every op");
  return Ok();
}

// Runs the steps in several threads that share the variables.
class WorkerSteps {
 public:
  WorkerSteps(const Session& session, Feeder& feeder, const StepsOptions& options,
              std::vector<std::string> fetches, StepDump* dump, executor::WorkerPrograms& programs)
      : session_(session),
        feeder_(feeder),
        options_(options),
        fetches_(std::move(fetches)),
        dump_(dump),
        programs_(programs),
        report_(session, feeder, options) {}

  StatusOr<StepsResult> run(StopTogether& stop);

 private:
  Status run_step(int worker, int64_t step, const NamedValues& feeds, NamedValues& results);
  Status note(int64_t step, const NamedValues& feeds, NamedValues& results);

  const Session& session_;
  Feeder& feeder_;
  const StepsOptions& options_;
  std::vector<std::string> fetches_;
  StepDump* dump_;  ///< null: nothing is dumped
  executor::WorkerPrograms& programs_;
  StepReport report_;
  std::map<int64_t, double> losses_;  ///< by step, because steps end in any order
  int64_t last_ = -1;                 ///< step of results_
  NamedValues results_;
};

Status WorkerSteps::run_step(int worker, int64_t step, const NamedValues& feeds,
                             NamedValues& results) {
  std::vector<Value> values;
  for (const std::string& name : fetches_) values.push_back(std::move(results[name]));
  if (Status status = programs_.run(worker, feeds, values); !status.ok())
    return in_step(session_, feeder_, step, std::move(status));
  for (size_t i = 0; i < fetches_.size(); ++i) results[fetches_[i]] = std::move(values[i]);
  return Ok();
}

Status WorkerSteps::note(int64_t step, const NamedValues& feeds, NamedValues& results) {
  if (const std::optional<double> loss = report_.note(step, feeds, results)) losses_[step] = *loss;
  if (step < last_) return Ok();
  last_ = step;
  std::swap(results_, results);
  return Ok();
}

StatusOr<StepsResult> WorkerSteps::run(StopTogether& stop) {
  TurnCalls calls;
  calls.stopped = [&] { return stop.signal() != 0; };
  calls.run = [&](int worker, int64_t step, const NamedValues& feeds, NamedValues& results) {
    return run_step(worker, step, feeds, results);
  };
  calls.write = [&](int64_t step, int64_t examples, const NamedValues& /*feeds*/,
                    NamedValues& results) {
    return dump_ == nullptr ? Ok() : dump_->write(step, examples, options_.fetches, results);
  };
  calls.note = [&](int64_t step, const NamedValues& feeds, NamedValues& results) {
    return note(step, feeds, results);
  };
  report_.begin();
  MILLRACE_RETURN_IF_ERROR(run_in_turn(feeder_, programs_.count(), 0, calls));
  programs_.finish();
  report_.end();
  StepsResult outcome;
  outcome.results = std::move(results_);
  for (const auto& [step, loss] : losses_) outcome.losses.push_back(loss);
  return outcome;
}

}  // namespace run_steps_of

StatusOr<StepsResult> run_steps(Session& session, Feeder& feeder, const StepsOptions& options,
                                StopTogether& stop) {
  using executor::NamedValues;
  using namespace run_steps_of;
  std::unique_ptr<StepDump> dump;
  if (options.workers > 1) MILLRACE_RETURN_IF_ERROR(check_workers(session, feeder, options));
  if (options.dump.wanted()) {
    MILLRACE_ASSIGN_OR_RETURN(dump, StepDump::open(options.dump));
  }
  const std::vector<std::string> fetches =
      dump == nullptr ? options.fetches : dump->with(options.fetches);
  if (options.workers > 1) {
    auto programs = executor::WorkerPrograms::create(*session.prepared, options.workers, fetches);
    if (!programs.ok()) return std::move(programs).status().in_file(session.name);
    return WorkerSteps(session, feeder, options, fetches, dump.get(), **programs).run(stop);
  }
  StepsResult outcome;
  RunCheckpoints checkpoints(options.checkpoints, options.log);
  MILLRACE_RETURN_IF_ERROR(checkpoints.begin(session, options.observed));
  const bool prefixed = !feeder.has_data() && (feeder.steps() != 1 || feeder.has_step_feeds());
  StepReport report(session, feeder, options);
  NamedValues values;
  report.begin();
  int64_t step = 0;
  for (; !feeder.ends_at(step); ++step) {
    MILLRACE_ASSIGN_OR_RETURN(const NamedValues* const feeds, feeder.feeds(step));
    if (feeds == nullptr) break;
    if (step < session.first_step) continue;  // feeds of steps that the checkpoint has already done
    if (Status status = run_step(session, *feeds, fetches, values); !status.ok())
      return in_step(session, feeder, step, std::move(status));
    if (dump != nullptr)
      MILLRACE_RETURN_IF_ERROR(
          dump->write(step, examples_of(feeder, *feeds), options.fetches, values));
    if (const std::optional<double> loss = report.note(step, *feeds, values))
      outcome.losses.push_back(*loss);
    MILLRACE_RETURN_IF_ERROR(stop.after_step());
    const bool last = stop.signal() != 0;
    MILLRACE_RETURN_IF_ERROR(checkpoints.after_step(session, step + 1, last));
    if (last) break;
    if (!prefixed) continue;
    for (auto& [name, value] : values)
      outcome.results[fmt::format("step{}/", step) + name] = std::move(value);
  }
  if (session.first_step > 0 && step <= session.first_step && stop.signal() == 0)
    options.log(LogLevel::kWarning,
                fmt::format("no step was run: the run has {} steps, and the checkpoint that it "
                            "continues from has done {}",
                            step, session.first_step));
  if (!prefixed) outcome.results = std::move(values);
  MILLRACE_RETURN_IF_ERROR(checkpoints.finish());
  report.end();
  return outcome;
}

}  // namespace millrace::jobs
