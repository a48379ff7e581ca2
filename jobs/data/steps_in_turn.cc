#include "jobs/data/steps_in_turn.h"

#include <mutex>

#include "executor/feed_values.h"
#include "jobs/data/run_workers.h"

namespace millrace::jobs {
namespace steps_in_turn {

using executor::NamedValues;

class Turns {
 public:
  Turns(Feeder& feeder, int64_t first, const TurnCalls& calls)
      : feeder_(feeder), calls_(calls), next_(first) {}

  // Runs steps in one worker until there are no more, one has failed, or the run is stopped.
  Status work(int worker);
  void stop() {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }

 private:
  // Copies the feeds of the next step. \returns false: there are no more
  StatusOr<bool> take(NamedValues& feeds, int64_t& step, int64_t& examples);

  Feeder& feeder_;
  const TurnCalls& calls_;
  std::mutex mutex_;  ///< guards what follows, the feeder, and what `note` uses
  int64_t next_;
  bool ended_ = false;
};

StatusOr<bool> Turns::take(NamedValues& feeds, int64_t& step, int64_t& examples) {
  const std::lock_guard lock(mutex_);
  if (ended_ || calls_.stopped() || feeder_.ends_at(next_)) return false;
  MILLRACE_ASSIGN_OR_RETURN(const NamedValues* const given, feeder_.feeds(next_));
  ended_ = given == nullptr;
  if (ended_) return false;
  step = next_++;
  examples = feeder_.step_examples();
  // the feeder reuses its memory for the next worker
  for (const auto& [name, value] : *given)
    MILLRACE_RETURN_IF_ERROR(executor::copy_value(value, feeds[name]));
  return true;
}

Status Turns::work(int worker) {
  NamedValues feeds;
  NamedValues results;
  while (true) {
    int64_t step = 0;
    int64_t examples = 0;
    MILLRACE_ASSIGN_OR_RETURN(const bool has_step, take(feeds, step, examples));
    if (!has_step) return Ok();
    MILLRACE_RETURN_IF_ERROR(calls_.run(worker, step, feeds, results));
    MILLRACE_RETURN_IF_ERROR(calls_.write(step, examples, feeds, results));
    const std::lock_guard lock(mutex_);
    MILLRACE_RETURN_IF_ERROR(calls_.note(step, feeds, results));
  }
}

}  // namespace steps_in_turn

Status run_in_turn(Feeder& feeder, int workers, int64_t first, const TurnCalls& calls) {
  steps_in_turn::Turns turns(feeder, first, calls);
  return run_workers(workers, {.work = [&](int worker) { return turns.work(worker); },
                               .leave = calls.leave,
                               .stop = [&] { turns.stop(); }});
}

}  // namespace millrace::jobs
