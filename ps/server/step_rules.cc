#include "ps/server/step_rules.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "ps/transport/epoch.h"

namespace millrace::ps {
namespace {

using Life = Trainer::Life;

Status wrong_phase(int trainer, const char* does, const char* instead, int64_t step) {
  return {StatusCode::kDistributed,
          fmt::format("trainer {} {} in step {}, expected {}", trainer, does, step, instead)};
}

}  // namespace

// A server that was started again does not know which trainers were lost before its snapshot.
Status StepRules::check_sends(int trainer, const char* does) const {
  const Trainer& who = trainers_.at(trainer);
  if (who.sent < counts_.applied && !who.is_placed)
    return {StatusCode::kDistributed,
            fmt::format("trainer {} {} in step {}, which was applied without it: it was lost",
                        trainer, does, who.sent)};
  if (who.may_send()) return Ok();
  return wrong_phase(trainer, does, "its fetch barrier first", counts_.applied);
}

Status StepRules::arrive(int trainer) {
  MILLRACE_RETURN_IF_ERROR(check_sends(trainer, "reached the send barrier"));
  ++trainers_.at(trainer).sent;
  return Ok();
}

bool StepRules::confirm(int trainer) {
  Trainer& who = trainers_.at(trainer);
  if (who.confirmed == who.sent) return false;
  who.confirmed = who.sent;
  return true;
}

bool StepRules::may_fetch(int trainer) const {
  return counts_.applied >= trainers_.at(trainer).sent && !counts_.held;
}

Status StepRules::fetched(const Request& request, bool is_repeat) {
  const int id = request.caller.trainer;
  Trainer& who = trainers_.at(id);
  if (is_repeat && (who.may_send() || request.sequence < who.window.highest())) return Ok();
  if (who.may_send())
    return wrong_phase(id, "reached the fetch barrier", "its send barrier first", counts_.applied);
  ++who.fetched;
  who.is_placed = false;
  return Ok();
}

bool StepRules::has_arrived(int trainer) const {
  const Trainer& who = trainers_.at(trainer);
  return who.sent > counts_.applied && !who.is_placed;
}

// Another server may lack the gradients of this step, and the trainer may be gone before it sends
// them there. What a lost trainer takes part in was agreed on.
bool StepRules::is_doubtful(int trainer) const {
  const Trainer& who = trainers_.at(trainer);
  return elastic_ && who.confirmed <= counts_.applied && who.life != Life::kLost;
}

bool StepRules::is_ready() const {
  bool any_expected = false;
  for (int t = 0; t < trainers_.count(); ++t) {
    if (trainers_.at(t).life == Life::kJoining) continue;
    if (trainers_.at(t).life == Life::kSuspected) return false;
    if (has_arrived(t)) {
      if (is_doubtful(t)) return false;
      any_expected = true;
    } else if (trainers_.at(t).is_expected()) {
      return false;
    }
  }
  return any_expected;
}

std::vector<char> StepRules::arrivals() const {
  std::vector<char> arrivals;
  for (int t = 0; t < trainers_.count(); ++t) {
    const bool joins = trainers_.at(t).life == Life::kJoining;
    arrivals.push_back(has_arrived(t) && !joins ? 1 : 0);
  }
  return arrivals;
}

void StepRules::advance() {
  ++counts_.applied;
  admit_joining();
}

// A delayed repeat of an earlier call must not bring back a trainer that has left.
bool StepRules::complete(int trainer, const protocol::Complete& message) {
  Trainer& who = trainers_.at(trainer);
  if (who.life == Life::kLeft) return false;
  if (who.life == Life::kLive && message.sent_everywhere) {
    who.confirmed = who.sent;
  } else if (who.life == Life::kLive && elastic_ && has_arrived(trainer) && is_doubtful(trainer)) {
    who.sent = counts_.applied;
  }
  who.life = message.stays ? Life::kGathering : Life::kLeft;
  return true;
}

protocol::HelloAnswer StepRules::greeting(int trainer) const {
  using Standing = protocol::HelloAnswer::Standing;
  const Trainer& who = trainers_.at(trainer);
  protocol::HelloAnswer answer;
  answer.sent = who.sent;
  answer.applied = counts_.applied;
  if (who.life == Life::kJoining) {
    answer.standing = Standing::kJoins;
  } else if (must_settle(trainer)) {
    answer.standing = Standing::kMustGoBack;
  }
  for (int id = 0; id < trainers_.count(); ++id) {
    const Trainer& other = trainers_.at(id);
    if (other.life == Life::kSuspected) answer.suspects.push_back({id, other.incarnation});
  }
  return answer;
}

// The lost trainer may take part in the step in progress, as agreed with the other servers; its
// replacement does not.
bool StepRules::must_wait(const Caller& caller) const {
  if (trainers_.must_wait(caller)) return true;
  if (!trainers_.check(caller).ok()) return false;
  const Trainer& who = trainers_.at(caller.trainer);
  return who.life == Life::kLost && who.incarnation != caller.incarnation &&
         has_arrived(caller.trainer);
}

bool StepRules::must_settle(int trainer) const {
  const int64_t applied = counts_.applied;
  const Trainer& own = trainers_.at(trainer);
  if (own.settled_at == applied || own.sent > applied) return false;
  for (int id = 0; id < trainers_.count(); ++id) {
    if (trainers_.at(id).settled_at == applied) return true;
  }
  return false;
}

bool StepRules::admit_joining() {
  bool admitted = false;
  for (int t = 0; t < trainers_.count(); ++t) {
    Trainer& who = trainers_.at(t);
    if (who.life != Life::kJoining || !who.is_placed) continue;
    const bool alone = trainers_.all_done() && !is_ready();
    if (alone && who.sent > counts_.applied)
      who.sent = who.fetched = who.confirmed = counts_.applied;
    if (who.sent > counts_.applied) continue;
    who.life = Life::kLive;
    admitted = true;
  }
  return admitted;
}

StatusOr<StepRules::Move> StepRules::plan(int trainer, int64_t step,
                                          const std::string& endpoint) const {
  const Trainer& who = trainers_.at(trainer);
  const bool joins = who.life == Life::kJoining;
  const bool is_behind = step < counts_.applied;
  if (is_behind && joins)
    return Status(StatusCode::kDistributed, fmt::format("step {} is already applied", step));
  // another server may have taken its place for lost before it called, and lets it join later
  const bool has_begun = !who.is_placed && (!elastic_ || has_arrived(trainer));
  if (step > counts_.applied && !joins && has_begun)
    return InvalidArgument("trainer {} wants to continue at step {}, but this server is at step {}",
                           trainer, step, counts_.applied);
  Move move;
  if (joins || step > counts_.applied) return move;
  for (int id = 0; id < trainers_.count(); ++id) {
    const Trainer& other = trainers_.at(id);
    const bool is_ahead = other.sent > step;
    if (other.life == Life::kLeft && is_behind && is_ahead)
      return InvalidArgument("this server ({}) cannot go back to step {}: trainer {} has left",
                             endpoint, step, id);
    if (id == trainer || other.life == Life::kLeft || other.life == Life::kLost ||
        other.life == Life::kJoining || other.life == Life::kSuspected)
      continue;
    // one that has sent nothing yet would send, and the step be applied, while the caller may have
    // to undo it on another server
    const bool may_send = other.life == Life::kLive || is_ahead;
    if (is_behind || (may_send && other.settled_at != step)) move.others.push_back(id);
  }
  move.loads = is_behind;
  return move;
}

Status StepRules::check_reason(int trainer, const protocol::GoTo& message,
                               const std::string& endpoint, uint64_t epoch) const {
  const std::string asks =
      fmt::format("trainer {} asks this server ({}) to go back from step {} to step {}", trainer,
                  endpoint, counts_.applied, message.step);
  if (message.oldest.empty())
    return InvalidArgument("{}, but names no server that is at that step", asks);
  if (message.oldest == endpoint && message.oldest_epoch != epoch)
    return InvalidArgument("{} because of epoch {}, but this is epoch {}", asks,
                           message.oldest_epoch, epoch);
  const auto last = counts_.went_back_for.find(message.oldest);
  if (last != counts_.went_back_for.end() &&
      (message.oldest_epoch == last->second ||
       term_of(message.oldest_epoch) < term_of(last->second)))
    return InvalidArgument(
        "{} because of epoch {} of the server at {}, but it has gone back because of epoch {} of "
        "that server before",
        asks, message.oldest_epoch, printable(message.oldest), last->second);
  return Ok();
}

void StepRules::discard(const std::vector<int>& others, int64_t step) {
  for (const int id : others) {
    Trainer& other = trainers_.at(id);
    place(id, step);
    other.life = Life::kAbsent;
    other.settled_at = -1;
  }
}

Status StepRules::settle(const Request& request, const protocol::GoTo& message,
                         Clock::time_point now) {
  const int id = request.caller.trainer;
  Trainer& who = trainers_.at(id);
  if (message.step <= counts_.applied && who.life != Life::kJoining) {
    if (who.life == Life::kLost)
      return {StatusCode::kDistributed,
              fmt::format("trainer {} was lost while the server went back", id)};
    who.life = Life::kLive;
    who.settled_at = message.step;
  }
  who.incarnation = request.caller.incarnation;
  who.seen = now;
  who.window.restore(message.settled, {});
  who.replies = KeptReplies();
  who.fetch_call = message.settled;
  place(id, message.step);
  return Ok();
}

void StepRules::place(int trainer, int64_t step) {
  Trainer& who = trainers_.at(trainer);
  who.sent = who.fetched = who.confirmed = step;
  who.is_placed = true;
  who.life = step > counts_.applied ? Life::kJoining : Life::kLive;
  admit_joining();
}

void StepRules::restore(int64_t applied) {
  counts_.applied = applied;
  trainers_.go_back(applied);
}

// A trainer that has only joined has sent nothing, whatever the one before it did.
void StepRules::suspect(int trainer) {
  Trainer& who = trainers_.at(trainer);
  if (who.life == Life::kJoining) who.is_placed = true;
  who.is_unheard = who.life == Life::kAbsent;
  who.life = Life::kSuspected;
}

bool StepRules::suspect_reported(const protocol::Loss& message) {
  if (!is_open(message)) return false;
  Trainer& lost = trainers_.at(message.trainer);
  const bool is_new = lost.life != Life::kSuspected;
  if (is_new) suspect(message.trainer);
  if (message.incarnation != 0) {
    lost.incarnation = message.incarnation;
    lost.is_unheard = false;
  }
  return is_new;
}

// A server that was started again may not know the process, or the server that has lost it may not.
bool StepRules::is_known(const protocol::Loss& message) const {
  const Trainer& lost = trainers_.at(message.trainer);
  return lost.incarnation == message.incarnation || lost.life == Life::kAbsent ||
         (lost.life == Life::kSuspected && lost.is_unheard) || message.incarnation == 0;
}

bool StepRules::lacks_steps_of(const protocol::Loss& message) const {
  return !is_known(message) && message.steps.value_or(0) > counts_.applied &&
         !trainers_.end_of(message.trainer, message.incarnation);
}

bool StepRules::is_open(const protocol::Loss& message) const {
  const Trainer& lost = trainers_.at(message.trainer);
  return is_known(message) && lost.life != Life::kLeft && lost.life != Life::kLost &&
         !trainers_.end_of(message.trainer, message.incarnation);
}

protocol::LossAnswer StepRules::answer(const protocol::Loss& message) const {
  const Trainer& lost = trainers_.at(message.trainer);
  const std::optional<int64_t> end = trainers_.end_of(
      message.trainer, message.incarnation != 0 ? message.incarnation : lost.incarnation);
  return {.steps = end.value_or(is_known(message) ? applied_with(message.trainer) : -1),
          .decided = end.has_value()};
}

int64_t StepRules::applied_with(int trainer) const {
  const Trainer& who = trainers_.at(trainer);
  return who.is_placed ? -1 : std::min(who.sent, counts_.applied);
}

bool StepRules::end_at(int trainer, int64_t step) {
  Trainer& who = trainers_.at(trainer);
  if (!who.is_placed && step >= 0) {
    if (step > who.sent) return false;
    who.sent = std::max(step, applied_with(trainer));
    if (who.sent != step) return false;
  }
  trainers_.note_end(trainer, who.incarnation, step);
  who.life = Life::kLost;
  return true;
}

CallsRecord record_calls(const Trainers& trainers, int64_t applied, bool is_sync) {
  CallsRecord record;
  record.applied = applied;
  for (int id = 0; id < trainers.count(); ++id) {
    const Trainer& trainer = trainers.at(id);
    const bool is_ahead = is_sync && trainer.sent > applied;
    const bool waits = trainer.is_placed || trainer.life == Life::kJoining;
    CallsRecord::Trainer& kept = record.trainers.emplace_back();
    kept.incarnation = trainer.incarnation;
    kept.sent = is_ahead ? (waits ? applied : trainer.sent - 1) : trainer.sent;
    kept.fetched = is_ahead && waits ? applied : trainer.fetched;
    kept.low = trainer.window.low();
    kept.done = trainer.window.done();
    if (!is_ahead) continue;
    kept.done.erase(kept.done.upper_bound(trainer.fetch_call), kept.done.end());
    kept.low = std::min(kept.low, trainer.fetch_call);
  }
  return record;
}

void load_calls(CallsRecord record, Trainers& trainers) {
  int id = 0;
  for (CallsRecord::Trainer& kept : record.trainers) {
    Trainer& trainer = trainers.at(id++);
    if (trainer.life == Life::kJoining) continue;
    trainer.sent = kept.sent;
    trainer.fetched = kept.fetched;
    trainer.confirmed = kept.sent;
    trainer.forget_calls();
    // a later process has made none of these calls
    if (trainer.incarnation != 0 && trainer.incarnation != kept.incarnation) continue;
    trainer.incarnation = kept.incarnation;
    trainer.window.restore(kept.low, std::move(kept.done));
  }
}

}  // namespace millrace::ps
