#include "jobs/ps/train.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>

#include <fmt/format.h>

#include "executor/feed_values.h"
#include "jobs/data/divided_steps.h"
#include "jobs/data/feeder.h"
#include "jobs/data/steps_in_turn.h"
#include "jobs/stats/fetches_line.h"
#include "jobs/stats/step_facts.h"

namespace millrace::jobs {
namespace {

using executor::NamedValues;

// Trains a job from a step on.
class TrainLoop {
 public:
  TrainLoop(Trainer& job, const TrainOptions& options, Feeder& feeder, StepDump* dump,
            NamedValues& results)
      : job_(job),
        options_(options),
        feeder_(feeder),
        dump_(dump),
        fetches_(dump == nullptr ? options.fetches : dump->with(options.fetches)),
        results_(results),
        prefixed_(!feeder.has_data()) {}

  // Runs the steps starting at `first`, until the trainer is stopped.
  Status run(int64_t first);
  // The same with several threads; each takes the next batch when it has finished one.
  Status run_side_by_side(int64_t first);

 private:
  Status show(int64_t step, int64_t examples, const NamedValues& feeds, NamedValues& values) const;
  void note(ProgressState& state, int64_t step, const NamedValues& values) const;
  void begin_progress(ProgressState& state) const;
  void end_progress(const ProgressState& state) const;

  Trainer& job_;
  const TrainOptions& options_;
  Feeder& feeder_;
  StepDump* dump_;                    ///< null: nothing is dumped
  std::vector<std::string> fetches_;  ///< with those that are only dumped
  NamedValues& results_;
  bool prefixed_;
};

void TrainLoop::begin_progress(ProgressState& state) const {
  if (options_.progress != nullptr) options_.progress->begin();
  state.steps = feeder_.steps();
  state.epochs = feeder_.epochs();
}

void TrainLoop::end_progress(const ProgressState& state) const {
  if (options_.progress != nullptr && feeder_.steps() != 1) options_.progress->finish(state);
}

// Writes and logs what a step has computed; keeps the values of the wanted fetches.
Status TrainLoop::show(int64_t step, int64_t examples, const NamedValues& feeds,
                       NamedValues& values) const {
  const int64_t rows = feeder_.has_data() ? examples : batch_of(feeds);
  if (dump_ != nullptr)
    MILLRACE_RETURN_IF_ERROR(dump_->write(step, rows, options_.fetches, values));
  if (options_.print_period > 0 && (step + 1) % options_.print_period == 0)
    options_.log(LogLevel::kInfo, fetches_line(step + 1, options_.fetches, values));
  return Ok();
}

// Shows the progress after a step. The caller has set the number of steps.
void TrainLoop::note(ProgressState& state, int64_t step, const NamedValues& values) const {
  state.epoch = feeder_.epoch(step);
  state.examples = feeder_.examples();
  const auto first =
      options_.fetches.empty() ? values.end() : values.find(options_.fetches.front());
  state.loss = first == values.end() ? std::nullopt : loss_of(first->second);
  if (options_.progress != nullptr) options_.progress->update(state);
}

Status TrainLoop::run(int64_t first) {
  ProgressState state;
  begin_progress(state);
  NamedValues values;
  if (first > 0) MILLRACE_RETURN_IF_ERROR(feeder_.go_to(first));
  for (int64_t step = first; !options_.stopped() && !feeder_.ends_at(step); ++step) {
    MILLRACE_ASSIGN_OR_RETURN(const NamedValues* const feeds, feeder_.feeds(step));
    if (feeds == nullptr) break;
    MILLRACE_RETURN_IF_ERROR(job_.step(step, *feeds, fetches_, values));
    MILLRACE_RETURN_IF_ERROR(show(step, feeder_.step_examples(), *feeds, values));
    state.step = step + 1;
    note(state, step, values);
    if (!prefixed_) continue;
    for (auto& [name, value] : values)
      results_[fmt::format("step{}/", step) + name] = std::move(value);
  }
  if (!prefixed_) results_ = std::move(values);
  end_progress(state);
  if (feeder_.waited_s() > 0)
    options_.log(LogLevel::kInfo,
                 fmt::format("steps waited {:.3f} s for examples", feeder_.waited_s()));
  return Ok();
}

Status TrainLoop::run_side_by_side(int64_t first) {
  ProgressState state;
  begin_progress(state);
  if (first > 0) MILLRACE_RETURN_IF_ERROR(feeder_.go_to(first));
  job_.workers_join();
  TurnCalls calls;
  calls.stopped = [&] { return options_.stopped(); };
  calls.run = [&](int worker, int64_t step, const NamedValues& feeds, NamedValues& values) {
    return job_.worker_step(worker, step, feeds, fetches_, values);
  };
  calls.write = [&](int64_t step, int64_t examples, const NamedValues& feeds, NamedValues& values) {
    return show(step, examples, feeds, values);
  };
  calls.note = [&](int64_t step, const NamedValues& /*feeds*/, NamedValues& values) -> Status {
    state.step = std::max(state.step, step + 1);
    note(state, step, values);
    for (auto& [name, value] : values) {
      Value& to = results_[prefixed_ ? fmt::format("step{}/", step) + name : name];
      MILLRACE_RETURN_IF_ERROR(executor::copy_value(value, to));
    }
    return Ok();
  };
  calls.leave = [&] { return job_.worker_leaves(); };
  MILLRACE_RETURN_IF_ERROR(run_in_turn(feeder_, job_.workers(), first, calls));
  end_progress(state);
  return Ok();
}

}  // namespace

Status train(Trainer& job, int number, const TrainOptions& options, const Trainer::Ending& ending,
             NamedValues& results) {
  MILLRACE_ASSIGN_OR_RETURN(Feeder feeder, Feeder::open(options.feeds, job.program()));
  if (executor::CollectiveGroup* const ranks = job.ranks())
    MILLRACE_RETURN_IF_ERROR(agree_on_steps(options.feeds, *ranks, feeder, options.log));
  std::unique_ptr<StepDump> dump;
  DumpOptions dumped = options.dump;
  MILLRACE_RETURN_IF_ERROR(job.add_dumps(dumped));
  if (dumped.wanted()) {
    MILLRACE_ASSIGN_OR_RETURN(dump, StepDump::open(dumped));
  }
  TrainLoop loop(job, options, feeder, dump.get(), results);
  for (int64_t first = job.first_step();;) {
    Status status = job.workers() > 1 ? loop.run_side_by_side(first) : loop.run(first);
    if (const std::string remark = feeder.remark(); !remark.empty())
      options.log(LogLevel::kWarning, remark);
    // completes the job at the servers, after all pending sends
    if (status.ok()) status = job.finish(options.stopped() ? Trainer::Ending() : ending);
    if (status.ok() || options.stopped() || !job.must_go_back()) return status;
    options.log(LogLevel::kWarning, status.message());
    MILLRACE_ASSIGN_OR_RETURN(first, job.go_back_until_settled());
    options.log(LogLevel::kWarning, fmt::format("trainer {} goes back to step {}", number, first));
    if (dump != nullptr) MILLRACE_RETURN_IF_ERROR(dump->go_back(first));
  }
}

}  // namespace millrace::jobs
