#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "ps/kill_points.h"
#include "ps/server/service.h"
#include "ps/table/table_handler.h"
#include "ps/transport/epoch.h"

// Snapshots of a server, and its term, which is recorded beside them.
namespace millrace::ps {
namespace {

// How long a snapshot waits for calls that change variables.
constexpr std::chrono::seconds kLongestChange{180};
constexpr std::chrono::milliseconds kShortestSuspension{100};

}  // namespace

Status Service::restore() {
  if (core_->options.snapshot_root.empty()) return Ok();
  snapshots_ = std::make_unique<Snapshots>(*core_);
  int64_t applied = 0;
  MILLRACE_ASSIGN_OR_RETURN(const bool found, snapshots_->restore(applied));
  if (found && steps_ != nullptr) steps_->restore(applied);
  if (found && core_->options.tables != nullptr) core_->options.tables->resume();
  restored_ = found;
  has_claimed_ = false;
  term_ = std::make_unique<ServerTerm>(core_->options.snapshot_root, core_->plan.server);
  MILLRACE_ASSIGN_OR_RETURN(const uint64_t last, term_->read());
  return begin_term(std::max(last, snapshots_->term()) + 1);
}

uint64_t Service::term() const {
  return term_of(core_->epoch);
}

Status Service::begin_term(uint64_t term) {
  const std::lock_guard lock(core_->mutex);
  core_->set_term(term);
  return Ok();
}

// Not earlier than here: a server that cannot listen must not end the one that serves.
Status Service::claim_term() {
  if (has_claimed_) return Ok();
  MILLRACE_ASSIGN_OR_RETURN(const uint64_t last, term_->read());
  if (last >= term()) return core_->superseded(last);  // it has started since restore()
  MILLRACE_RETURN_IF_ERROR(term_->write(term()));
  has_claimed_ = true;
  core_->changed.notify_all();
  return Ok();
}

Status Service::wait_for_term(std::unique_lock<std::mutex>& lock, Deadline deadline) {
  if (has_claimed_) return Ok();
  return core_->wait(
      lock, deadline, [this] { return has_claimed_; },
      [] { return std::string("the server to record its term"); });
}

Status Service::check_after_pause() {
  const Clock::duration paused = core_->pauses.paused();
  const BootClock::duration suspended = suspended_time();
  if (paused == checked_at_ && suspended - suspended_ < kShortestSuspension) return core_->failure;
  checked_at_ = paused;
  suspended_ = suspended;
  return check_term();
}

Status Service::check_term() {
  if (term_ == nullptr || !core_->failure.ok()) return core_->failure;
  const StatusOr<uint64_t> last = term_->read();
  if (!last.ok()) {
    core_->failure = last.status();
  } else if (*last > term()) {
    core_->failure = core_->superseded(*last);
  }
  if (!core_->failure.ok()) core_->changed.notify_all();
  return core_->failure;
}

Status Service::lost_everybody(std::unique_lock<std::mutex>& lock) {
  const std::string who =
      core_->trainers.list(core_->now(), [](const Trainer& /*trainer*/) { return true; });
  std::string saved = "nothing was saved: this server takes no snapshots";
  if (snapshots_ != nullptr && !has_values()) {
    saved = "nothing was saved: no trainer had set the values of this server";
  } else if (snapshots_ != nullptr) {
    const int64_t failed = snapshots_failed_;
    const bool done = snapshot(lock, /*now=*/true).ok() && snapshots_failed_ == failed;
    const std::string at =
        steps_ != nullptr ? fmt::format(" of step {}", steps_->applied()) : std::string();
    saved = fmt::format("{} snapshot{} {} in {}", done ? "a" : "the last", at,
                        done ? "was saved" : "could not be saved", core_->options.snapshot_root);
  }
  return {StatusCode::kDistributed,
          fmt::format("no trainer is left that could finish the job: {}; {}", who, saved)};
}

Status Service::check_covered(const char* what) const {
  if (steps_ == nullptr || snapshots_ == nullptr) return Ok();
  return Unimplemented(
      "{} is not implemented while the servers of a synchronous job take snapshots: servers that "
      "go "
      "back to a step would lose it",
      what);
}

bool Service::has_values() const {
  return core_->options.tables == nullptr || core_->options.tables->is_ready();
}

// Asynchronous servers of programs begin again from their startup program.
Status Service::take_first(std::unique_lock<std::mutex>& lock) {
  if (has_first_ || !has_values()) return Ok();
  has_first_ = true;
  const bool needs = steps_ != nullptr || (core_->options.tables != nullptr &&
                                           core_->options.tables->waits_for_values());
  if (snapshots_ == nullptr || restored_ || !needs) return Ok();
  return take_snapshot(lock, core_->options.snapshot_durable);
}

// A failure to write a snapshot does not stop training.
Status Service::snapshot(std::unique_lock<std::mutex>& lock, bool now) {
  if (snapshots_ == nullptr || !has_values()) return Ok();
  // going back uses the snapshots, too
  core_->changed.wait(lock, [this] { return !going_back_; });
  const int64_t applied = steps_ != nullptr ? steps_->applied() : 0;
  if (!now && !snapshots_->is_due(applied, Clock::now())) return Ok();
  // a second snapshot of the same step would displace an older one that others may need
  if (now && steps_ != nullptr && snapshots_->is_at(applied)) {
    saving_snapshot_ = true;
    lock.unlock();
    Status written = snapshots_->finish();
    lock.lock();
    saving_snapshot_ = false;
    core_->changed.notify_all();
    return written;
  }
  return take_snapshot(lock, now || core_->options.snapshot_durable);
}

// The mutex is only held for the record of the calls, so that heartbeats and status requests are
// answered while values are copied and written.
Status Service::take_snapshot(std::unique_lock<std::mutex>& lock, bool wait) {
  const int64_t applied = steps_ != nullptr ? steps_->applied() : 0;
  const auto begin = Clock::now();
  saving_snapshot_ = true;
  // trainers continue when the snapshot of their step is on disk
  if (steps_ != nullptr) steps_->hold(wait);
  lock.unlock();
  Status status = snapshots_->finish();  // of the previous one
  lock.lock();
  if (status.ok()) status = copy_snapshot(lock, applied);
  if (status.ok() && wait) {
    lock.unlock();
    status = snapshots_->finish();
    lock.lock();
  }
  saving_snapshot_ = false;
  if (steps_ != nullptr) steps_->hold(/*held=*/false);
  core_->changed.notify_all();
  ++(status.ok() ? snapshots_taken_ : snapshots_failed_);
  snapshot_seconds_ = std::chrono::duration<double>(Clock::now() - begin).count();
  if (status.ok()) snapshot_time_ = std::chrono::system_clock::now();
  if (status.ok()) return Ok();
  if (core_->options.snapshot_durable)
    return std::move(status).with_note("while saving a snapshot");
  core_->log("a snapshot could not be written: " + status.message());
  return Ok();
}

Status Service::copy_snapshot(std::unique_lock<std::mutex>& lock, int64_t applied) {
  // the effect of a call and the record of it must be in the same snapshot
  freezing_ = true;
  const bool quiet =
      core_->pauses.wait_until(core_->changed, lock, Clock::now() + kLongestChange,
                               [this] { return changing_ == 0 || !core_->failure.ok(); });
  Status status = core_->failure;
  if (!quiet) {
    status = Status(
        StatusCode::kDistributed,
        fmt::format("calls that change variables still run after {} s", kLongestChange.count()));
  } else if (status.ok() && (status = check_term()).ok()) {
    const auto frozen = core_->freeze();
    const Snapshots::Moment moment = snapshots_->moment(applied);
    lock.unlock();
    status = snapshots_->take(moment);
  }
  if (!lock.owns_lock()) lock.lock();
  freezing_ = false;
  return status;
}

StatusOr<Snapshots::Found> Service::find_snapshot(int64_t step) const {
  // a trainer that joins an elastic server would continue with updates that only some servers have
  if (snapshots_ != nullptr) return snapshots_->find(step, /*or_older=*/!core_->options.elastic);
  return NotFound("this server ({}) takes no snapshots, so it cannot go back to step {}",
                  core_->plan.endpoint, step);
}

Status Service::go_back(std::unique_lock<std::mutex>& lock, const Call& call,
                        const protocol::GoTo& message, const StepRules::Move& move) {
  const int64_t step = message.step;
  std::optional<Snapshots::Found> found;
  if (move.loads) {
    MILLRACE_RETURN_IF_ERROR(
        steps_->rules().check_reason(call.trainer(), message, core_->plan.endpoint, core_->epoch));
    core_->log(fmt::format(
        "trainer {} asks this server ({}) to go back from step {} to step {}, because the server "
        "at {} is at that step",
        call.trainer(), core_->plan.endpoint, steps_->applied(), step, printable(message.oldest)));
    StatusOr<Snapshots::Found> snapshot = find_snapshot(step);
    if (!snapshot.ok()) {
      if (core_->options.elastic)
        core_->failure = Status(StatusCode::kDistributed, snapshot.status().message());
      core_->changed.notify_all();
      return std::move(snapshot).status();
    }
    found = *std::move(snapshot);
    if (found->applied != step) return go_back_further(lock, call, message, *found);
    steps_->note_reason(message);
  }
  return begin_run(lock, call, move.others, found ? &*found : nullptr);
}

// Servers that ended a step apart may have last snapshots of different steps. This server then is
// as one that was started again from an older one: trainers meet at that step.
Status Service::go_back_further(std::unique_lock<std::mutex>& lock, const Call& call,
                                const protocol::GoTo& message, const Snapshots::Found& found) {
  MILLRACE_ASSIGN_OR_RETURN(
      StepRules::Move move,
      steps_->rules().plan(call.trainer(), found.applied, core_->plan.endpoint));
  steps_->note_reason(message);
  move.others.push_back(call.trainer());
  MILLRACE_RETURN_IF_ERROR(begin_run(lock, call, move.others, &found));
  return {StatusCode::kDistributed,
          fmt::format("this server ({}) has no snapshot of step {}, so it went back to step {}",
                      core_->plan.endpoint, message.step, found.applied)};
}

Status Service::begin_run(std::unique_lock<std::mutex>& lock, const Call& call,
                          const std::vector<int>& discarded, const Snapshots::Found* found) {
  // from here on, calls of the old epoch are refused, and waiting calls end
  if (found != nullptr) reach(core_->options.kill_point, "server/before-go-back");
  going_back_ = true;
  core_->begin_run();
  const bool empty =
      core_->pauses.wait_until(core_->changed, lock, call.deadline, [&] { return inside_ == 0; });
  Status status = empty ? Ok() : Status(StatusCode::kDistributed, "calls did not end in time");
  if (status.ok() && found != nullptr) {
    const auto frozen = core_->freeze();
    status = snapshots_->go_back(*found);
    steps_->restore(found->applied);
    reach(core_->options.kill_point, "server/after-go-back");
  }
  going_back_ = false;
  core_->changed.notify_all();
  if (!status.ok()) {
    core_->failure = status;
    return status;
  }
  steps_->discard(discarded, steps_->applied());
  started_ = core_->now();
  return Ok();
}

}  // namespace millrace::ps
