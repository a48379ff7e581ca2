// A server of the model: what ps/server/service*.cc do around the rules, without threads, locks,
// values and files.
#include <algorithm>

#include <fmt/format.h>

#include "ps/transport/epoch.h"
#include "tests/explorer/model.h"

namespace millrace::explorer {
namespace {

using ps::StepRules;
using ps::Trainer;

StepRules rules_of(const Job& job, ServerState& server) {
  return {server.trainers, server.counts, job.elastic};
}

Answer refused(const ServerState& server, const Status& status) {
  const bool fatal = status.code() != StatusCode::kDistributed;
  return {.kind = fatal ? Answer::Kind::kFatal : Answer::Kind::kRefused,
          .epoch = server.epoch,
          .why = status.message()};
}

// ServerCore::check_served().
Status check(const Job& job, const ServerState& server, const ps::Request& request) {
  if (ps::names_run(request.epoch) && request.epoch != server.epoch)
    return {StatusCode::kDistributed, "another run of the server"};
  ps::Request own = request;
  if (job.mutation == Mutation::kNoIncarnation)
    own.caller.incarnation = server.trainers.at(own.caller.trainer).incarnation;
  return server.trainers.check_served(own);
}

void drop_partial(const Job& job, ServerState& server, int trainer) {
  if (!rules_of(job, server).has_arrived(trainer)) server.slots[static_cast<size_t>(trainer)] = -1;
}

Answer barrier(const Job& job, ServerState& server, const Message& message,
               const ps::Request& request, bool is_repeat) {
  StepRules rules = rules_of(job, server);
  const int id = message.trainer;
  if (message.method == ps::Method::kSendBarrier) {
    if (is_repeat) return {.epoch = server.epoch};
    if (Status status = rules.check_sends(id, "sends"); !status.ok())
      return refused(server, status);
    server.slots[static_cast<size_t>(id)] = message.gradients;
    if (Status status = rules.arrive(id); !status.ok()) return refused(server, status);
    return {.epoch = server.epoch};
  }
  if (!is_repeat) {
    if (message.everywhere) rules.confirm(id);
    if (!rules.may_fetch(id)) return {.kind = Answer::Kind::kWaits, .epoch = server.epoch};
  }
  if (Status status = rules.fetched(request, is_repeat); !status.ok())
    return refused(server, status);
  return {.epoch = server.epoch, .values = server.history};
}

Answer complete(const Job& job, ServerState& server, const Message& message) {
  const ps::protocol::Complete what{
      .stays = message.stays, .waits = false, .sent_everywhere = message.everywhere};
  StepRules rules = rules_of(job, server);
  if (rules.complete(message.trainer, what)) {
    drop_partial(job, server, message.trainer);
    rules.admit_joining();
  }
  return {.epoch = server.epoch};
}

void load(const Job& job, ServerState& server, const Snapshot& snapshot) {
  ps::load_calls(snapshot.calls, server.trainers);
  rules_of(job, server).restore(snapshot.applied);
  server.history = snapshot.history;
  std::fill(server.slots.begin(), server.slots.end(), -1);
}

void save(ServerState& server, Snapshot snapshot) {
  constexpr size_t kKept = 3;
  server.disk.push_back(std::move(snapshot));
  if (server.disk.size() > kKept) server.disk.erase(server.disk.begin());
}

bool end_at(const Job& job, ServerState& server, int trainer, int64_t step) {
  if (!rules_of(job, server).end_at(trainer, step)) return false;
  drop_partial(job, server, trainer);
  return true;
}

}  // namespace

// Service::answer() and once().
Answer handle(const Job& job, ServerState& server, const Message& message) {
  ps::Request request;
  request.method = message.method;
  request.caller = {"", message.trainer, message.incarnation};
  request.epoch = message.epoch;
  request.sequence = message.sequence;
  if (Status status = check(job, server, request); !status.ok()) return refused(server, status);
  if (message.method == ps::Method::kComplete) return complete(job, server, message);
  Trainer& trainer = server.trainers.at(message.trainer);
  const auto seen = trainer.window.begin(message.sequence);
  const bool is_repeat =
      seen == ps::SequenceWindow::Seen::kDone && job.mutation != Mutation::kRepeatsCarriedOut;
  Answer answer = barrier(job, server, message, request, is_repeat);
  (void)trainer.end_call(request, is_repeat, answer.kind == Answer::Kind::kOk);
  return answer;
}

// Service::hello().
Answer hello(const Job& job, ServerState& server, const TrainerState& trainer, int id) {
  const View& view = trainer.views[static_cast<size_t>(server.number)];
  const ps::Caller caller{"", id, trainer.incarnation};
  StepRules rules = rules_of(job, server);
  const bool waits = job.mutation == Mutation::kEarlyReplacement ? server.trainers.must_wait(caller)
                                                                 : rules.must_wait(caller);
  if (waits) return {.kind = Answer::Kind::kWaits, .epoch = server.epoch};
  const uint64_t settled = view.pending.empty() ? view.sequence : *view.pending.begin() - 1;
  const Status status = server.trainers.hello(
      caller, {},
      {.has_fetched = view.fetched > view.sent, .sent = view.sent, .settled = settled, .plan = {}});
  if (!status.ok()) return refused(server, status);
  const Trainer& own = server.trainers.at(id);
  if (own.life == Trainer::Life::kJoining && !own.is_placed) drop_partial(job, server, id);
  Answer answer{.epoch = server.epoch, .hello = rules.greeting(id)};
  if (job.mutation == Mutation::kNoSettling)
    answer.hello.standing = ps::protocol::HelloAnswer::Standing::kContinues;
  return answer;
}

// Service::begin_run() with a snapshot; later ones are removed.
void load_again(const Job& job, ServerState& server, std::vector<Snapshot>::iterator found) {
  server.disk.erase(found + 1, server.disk.end());
  const Snapshot snapshot = *found;
  ++server.epoch;
  load(job, server, snapshot);
  save(server, {snapshot.applied, ps::record_calls(server.trainers, snapshot.applied, true),
                snapshot.history});
}

// Service::go_back_further().
Answer go_back_further(const Job& job, ServerState& server, int trainer,
                       std::vector<Snapshot>::iterator older) {
  StepRules rules = rules_of(job, server);
  const int64_t step = older->applied;
  auto move = rules.plan(trainer, step, "");
  if (!move.ok()) return refused(server, move.status());
  move->others.push_back(trainer);
  load_again(job, server, older);
  rules.discard(move->others, step);
  for (const int id : move->others) drop_partial(job, server, id);
  return refused(server, Status(StatusCode::kDistributed, "went back further"));
}

Answer go_to(const Job& job, ServerState& server, const ps::Request& request,
             const ps::protocol::GoTo& message) {
  if (Status status = check(job, server, request); !status.ok()) return refused(server, status);
  if (server.is_due || server.counts.held)
    return {.kind = Answer::Kind::kWaits, .epoch = server.epoch};
  StepRules rules = rules_of(job, server);
  const auto move = rules.plan(request.caller.trainer, message.step, "");
  if (!move.ok()) return refused(server, move.status());
  if (move->loads) {
    const Status reason = rules.check_reason(request.caller.trainer, message,
                                             std::to_string(server.number), server.epoch);
    if (!reason.ok()) return refused(server, reason);
    (void)written(server);
    const auto last = std::find_if(server.disk.rbegin(), server.disk.rend(), [&](const auto& each) {
      const bool is_exact = job.elastic || job.mutation == Mutation::kExactSnapshots;
      return is_exact ? each.applied == message.step : each.applied <= message.step;
    });
    if (last == server.disk.rend())
      return {.kind = Answer::Kind::kFatal, .epoch = server.epoch, .why = "no such snapshot"};
    const auto found = last.base() - 1;
    server.counts.went_back_for[message.oldest] = message.oldest_epoch;
    if (found->applied != message.step)
      return go_back_further(job, server, request.caller.trainer, found);
    load_again(job, server, found);
  } else if (move->begins_run()) {
    ++server.epoch;
  }
  rules.discard(move->others, message.step);
  for (const int id : move->others) drop_partial(job, server, id);
  if (Status status = rules.settle(request, message, {}); !status.ok())
    return refused(server, status);
  drop_partial(job, server, request.caller.trainer);
  return {.epoch = server.epoch};
}

// Service::agree_on_loss().
Answer settle_loss(const Job& job, ServerState& server, const ps::Request& request,
                   const ps::protocol::Loss& message) {
  if (Status status = check(job, server, request); !status.ok()) return refused(server, status);
  const bool keeps_all = job.durable && job.snapshot_every == 1;
  const bool is_absent = server.trainers.at(request.caller.trainer).life == Trainer::Life::kAbsent;
  if (!keeps_all && (is_absent || !ps::names_run(request.epoch)))
    return {.kind = Answer::Kind::kRefused, .epoch = server.epoch};
  StepRules rules = rules_of(job, server);
  rules.suspect_reported(message);
  if (!message.steps) return {.epoch = server.epoch, .loss = rules.answer(message)};
  if (rules.lacks_steps_of(message) ||
      (rules.is_open(message) && !end_at(job, server, message.trainer, *message.steps))) {
    server.life = ServerState::Life::kFailed;
    return {.kind = Answer::Kind::kRefused, .epoch = server.epoch, .why = "lacks an update"};
  }
  return {.epoch = server.epoch};
}

bool decide_alone(const Job& job, ServerState& server) {
  if (server.trainers.can_agree() && job.mutation != Mutation::kOwnCount) return false;
  bool any = false;
  for (int id = 0; id < job.trainers; ++id) {
    if (server.trainers.at(id).life != Trainer::Life::kSuspected) continue;
    any = true;
    (void)end_at(job, server, id, rules_of(job, server).applied_with(id));
  }
  if (any) rules_of(job, server).admit_joining();
  return any;
}

bool apply(const Job& job, ServerState& server, State& state) {
  const bool elastic = job.elastic && job.mutation != Mutation::kNoConfirmation;
  if (server.is_due || server.counts.held) return false;
  if (!StepRules(server.trainers, server.counts, elastic).is_ready()) return false;
  StepRules rules = rules_of(job, server);
  uint8_t members = 0;
  const std::vector<char> arrivals = rules.arrivals();
  for (size_t t = 0; t < arrivals.size(); ++t) {
    if (arrivals[t] == 0) continue;
    members |= static_cast<uint8_t>(1U << t);
    if (server.slots[t] != server.counts.applied)
      state.violation =
          fmt::format("step {} is applied with the gradients of trainer {} of step {}",
                      server.counts.applied, t, server.slots[t]);
  }
  server.history.push_back(members);
  std::fill(server.slots.begin(), server.slots.end(), -1);
  rules.advance();
  if (job.snapshot_every == 0 || server.counts.applied % job.snapshot_every != 0) return true;
  server.is_due = true;
  server.counts.held = job.durable && job.mutation != Mutation::kNotDurable;
  return true;
}

bool copy_snapshot(const Job& job, ServerState& server) {
  if (!server.is_due || server.writing) return false;
  server.is_due = false;
  const bool is_cut = job.mutation != Mutation::kWholeRecord;
  const int64_t applied = server.counts.applied;
  server.writing = {applied, ps::record_calls(server.trainers, applied, is_cut), server.history};
  return true;
}

bool written(ServerState& server) {
  if (!server.writing) return false;
  save(server, *std::move(server.writing));
  server.writing.reset();
  server.counts.held = false;
  return true;
}

void save_last(ServerState& server) {
  if (server.disk.back().applied == server.counts.applied) return;
  server.disk.push_back({server.counts.applied,
                         ps::record_calls(server.trainers, server.counts.applied, true),
                         server.history});
}

void start(const Job& job, ServerState& server) {
  ServerState fresh(job, server.number);
  fresh.disk = std::move(server.disk);
  fresh.term = server.term + 1;
  fresh.epoch = ps::make_epoch(fresh.term, 1);
  load(job, fresh, fresh.disk.back());
  server = std::move(fresh);
}

}  // namespace millrace::explorer
