#include "ps/server/trainers.h"

#include <algorithm>
#include <utility>

#include "framework/base/errors.h"

namespace millrace::ps {
namespace {

Status refused(std::string message) {
  return {StatusCode::kDistributed, std::move(message)};
}

}  // namespace

bool Trainer::end_call(const Request& request, bool is_repeat, bool is_ok) {
  if (incarnation != request.caller.incarnation) return false;
  if (!is_repeat) window.finish(request.sequence, is_ok);
  if (is_ok && request.method == Method::kFetchBarrier)
    fetch_call = std::max(fetch_call, request.sequence);
  return true;
}

Trainers::Trainers(int count, std::string job, bool elastic, Clock::time_point now)
    : trainers_(static_cast<size_t>(count)), job_(std::move(job)), elastic_(elastic) {
  for (Trainer& trainer : trainers_) trainer.seen = now;
}

Status Trainers::check(const Caller& caller) const {
  if (caller.job != job_) {
    return refused(fmt::format("the call belongs to job '{}', but this server belongs to job '{}'",
                               caller.job, job_));
  }
  if (caller.trainer < 0 || caller.trainer >= count()) {
    return InvalidArgument("trainer {} does not exist, the job has trainers 0 to {}",
                           caller.trainer, count() - 1);
  }
  return Ok();
}

bool Trainers::knows(const Caller& caller) const {
  return check(caller).ok() && caller.incarnation != 0 &&
         at(caller.trainer).incarnation == caller.incarnation;
}

bool Trainers::must_wait(const Caller& caller) const {
  if (!elastic_ || !check(caller).ok()) return false;
  const Trainer& trainer = at(caller.trainer);
  return trainer.incarnation != caller.incarnation &&
         ((trainer.life == Trainer::Life::kLost && trainer.inside > 0) ||
          trainer.life == Trainer::Life::kLive || trainer.life == Trainer::Life::kGathering ||
          trainer.life == Trainer::Life::kJoining || trainer.life == Trainer::Life::kSuspected);
}

Status Trainers::hello(const Caller& caller, Clock::time_point now,
                       const protocol::Hello& message) {
  MILLRACE_RETURN_IF_ERROR(check(caller));
  Trainer& trainer = at(caller.trainer);
  if (trainer.life != Trainer::Life::kAbsent && trainer.incarnation != caller.incarnation) {
    const bool may_replace = elastic_ && trainer.life == Trainer::Life::kLost;
    if (!may_replace) {
      return refused(fmt::format("trainer {} is already connected: {}", caller.trainer,
                                 describe(caller.trainer, now)))
          .with_hint("two processes were started with one trainer id");
    }
    trainer.forget_calls();
    trainer.life = Trainer::Life::kJoining;
    trainer.fetch_call = 0;
    trainer.is_placed = false;
  }
  if (trainer.life == Trainer::Life::kAbsent) {
    trainer.life = Trainer::Life::kLive;
    if (trainer.incarnation != caller.incarnation) trainer.forget_calls();
    const bool is_ahead = trainer.sent > message.sent;
    trainer.fetched = trainer.sent + (message.has_fetched && !is_ahead ? 1 : 0);
  }
  trainer.window.settle(message.settled);
  trainer.replies.settle(message.settled);
  trainer.incarnation = caller.incarnation;
  trainer.seen = now;
  return Ok();
}

Status Trainers::check_served(const Request& request) const {
  const Caller& caller = request.caller;
  MILLRACE_RETURN_IF_ERROR(check(caller));
  const Trainer& trainer = at(caller.trainer);
  // one whose calls wait at other servers until all have agreed says no hello to this one before
  if (trainer.life == Trainer::Life::kAbsent && request.method == Method::kLoss) return Ok();
  if (trainer.incarnation != caller.incarnation || trainer.life == Trainer::Life::kAbsent) {
    return refused(fmt::format("'{}' of trainer {}, which has not sent a hello to this server",
                               method_name(request.method), caller.trainer));
  }
  if (trainer.life == Trainer::Life::kLost || trainer.life == Trainer::Life::kSuspected) {
    return refused(fmt::format("trainer {} was silent for too long; the job continues without it",
                               caller.trainer));
  }
  if (trainer.life == Trainer::Life::kLeft && request.method != Method::kComplete) {
    return refused(fmt::format("'{}' of trainer {}, which has left", method_name(request.method),
                               caller.trainer));
  }
  return Ok();
}

StatusOr<Trainer*> Trainers::find(const Request& request, Clock::time_point now) {
  MILLRACE_RETURN_IF_ERROR(check_served(request));
  Trainer& trainer = at(request.caller.trainer);
  trainer.seen = now;
  trainer.last = request.method;
  if (request.step >= 0) trainer.step = request.step;
  return &trainer;
}

bool Trainers::all_done() const {
  for (const Trainer& trainer : trainers_) {
    if (trainer.is_expected()) return false;
  }
  return true;
}

bool Trainers::all_gone() const {
  for (const Trainer& trainer : trainers_) {
    if (trainer.is_expected() || trainer.life == Trainer::Life::kGathering ||
        trainer.life == Trainer::Life::kJoining)
      return false;
  }
  return true;
}

bool Trainers::all_lost() const {
  for (const Trainer& trainer : trainers_) {
    if (trainer.life != Trainer::Life::kLost) return false;
  }
  return !trainers_.empty();
}

bool Trainers::can_agree() const {
  return std::ranges::any_of(trainers_, [](const Trainer& trainer) {
    return trainer.life == Trainer::Life::kAbsent || trainer.life == Trainer::Life::kLive ||
           trainer.life == Trainer::Life::kGathering || trainer.life == Trainer::Life::kJoining;
  });
}

void Trainers::note_end(int id, uint64_t incarnation, int64_t steps) {
  if (incarnation != 0) ends_[{id, incarnation}] = steps;
}

std::optional<int64_t> Trainers::end_of(int id, uint64_t incarnation) const {
  const auto found = ends_.find({id, incarnation});
  return found == ends_.end() ? std::nullopt : std::optional(found->second);
}

void Trainers::go_back(int64_t step) {
  for (auto& [who, steps] : ends_) steps = std::min(steps, step);
}

std::string Trainers::describe(int id, Clock::time_point now) const {
  const Trainer& trainer = at(id);
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(now - trainer.seen).count();
  switch (trainer.life) {
    case Trainer::Life::kAbsent:
      return fmt::format("trainer {} (not connected yet)", id);
    case Trainer::Life::kLeft:
      return fmt::format("trainer {} (has left)", id);
    case Trainer::Life::kLost:
      return fmt::format("trainer {} (lost)", id);
    default:
      break;
  }
  const std::string step =
      trainer.step < 0 ? std::string() : fmt::format(" of step {}", trainer.step);
  return fmt::format("trainer {} (last heard {} s ago: {}{})", id, seconds,
                     method_name(trainer.last), step);
}

}  // namespace millrace::ps
