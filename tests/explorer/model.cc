#include "tests/explorer/model.h"

#include <algorithm>

#include <fmt/format.h>

#include "ps/transport/epoch.h"
#include "tests/explorer/model_trainer.h"

namespace millrace::explorer {
namespace {

using Kind = Event::Kind;
using Life = ServerState::Life;
using TrainerLife = TrainerState::Life;
using ServedLife = ps::Trainer::Life;

TrainerState process_of(const Job& job, State& state) {
  TrainerState trainer;
  trainer.incarnation = ++state.incarnations;
  trainer.lanes.resize(static_cast<size_t>(job.servers));
  trainer.views.resize(static_cast<size_t>(job.servers));
  return trainer;
}

// What a server forgets of trainers that have left is not restored.
bool any_finishes(const State& state) {
  return std::ranges::any_of(state.trainers, [](const TrainerState& trainer) {
    return trainer.life == TrainerLife::kDone || trainer.phase == TrainerState::Phase::kStay ||
           trainer.phase == TrainerState::Phase::kLeave;
  });
}

bool crash(State& state, ServerState& server) {
  if (state.crashes == 0 || server.life != Life::kUp || any_finishes(state)) return false;
  --state.crashes;
  server.life = Life::kDown;
  server.writing.reset();
  return true;
}

bool restart(const Job& job, State& state) {
  if (state.restarts == 0 || any_finishes(state)) return false;
  for (ServerState& server : state.servers) {
    if (server.life != Life::kUp) return false;
    server.is_due = false;
    (void)written(server);
    save_last(server);
    start(job, server);
  }
  --state.restarts;
  for (TrainerState& trainer : state.trainers) trainer = process_of(job, state);
  return true;
}

bool end(ServerState& server) {
  if (!server.trainers.all_gone() || server.is_due) return false;
  (void)written(server);
  server.life = Life::kEnded;
  return true;
}

// \param is_fault  the trainer lives
bool silence(const Job& job, State& state, ServerState& server, int id, bool is_fault) {
  const TrainerState& process = state.trainers[static_cast<size_t>(id)];
  const ps::Trainer& trainer = server.trainers.at(id);
  const bool is_there = trainer.life == ServedLife::kLive ||
                        trainer.life == ServedLife::kGathering ||
                        trainer.life == ServedLife::kJoining;
  const bool is_absent = trainer.life == ServedLife::kAbsent;
  const bool runs = process.life == TrainerLife::kRuns;
  const bool is_same = process.incarnation == trainer.incarnation;
  if (!job.elastic) return false;
  if (is_fault) {
    if (state.silences == 0 || !is_there || !runs || !is_same) return false;
    --state.silences;
    state.given_up |= static_cast<uint8_t>(1U << static_cast<unsigned>(id));
  } else if (!(is_there && !(runs && is_same)) && !(is_absent && !runs)) {
    return false;
  }
  ps::StepRules rules(server.trainers, server.counts, job.elastic);
  rules.suspect(id);
  rules.admit_joining();
  return true;
}

bool kill(State& state, TrainerState& trainer) {
  if (state.kills == 0 || trainer.life != TrainerLife::kRuns) return false;
  --state.kills;
  const uint64_t incarnation = trainer.incarnation;
  trainer = TrainerState();
  trainer.incarnation = incarnation;
  trainer.life = TrainerLife::kKilled;
  return true;
}

bool replace(const Job& job, State& state, TrainerState& trainer) {
  if (!job.replaces || trainer.life != TrainerLife::kKilled) return false;
  trainer = process_of(job, state);
  return true;
}

// The request is lost, or arrives late.
bool lose_request(State& state, const Event& event) {
  TrainerState& trainer = state.trainers[static_cast<size_t>(event.a)];
  const auto server = static_cast<size_t>(event.b);
  int& left = event.kind == Kind::kDelay ? state.lates : state.cuts;
  if (left == 0 || !has_call(trainer, server)) return false;
  if (trainer.lanes[server].state == Lane::State::kGreet) return false;
  --left;
  if (event.kind == Kind::kDelay)
    state.late.emplace_back(event.b, message_of(trainer, event.a, server));
  lose(trainer, server);
  return true;
}

bool arrives(const Job& job, State& state) {
  if (state.late.empty()) return false;
  const auto [number, message] = state.late.front();
  state.late.erase(state.late.begin());
  ServerState& server = state.servers[static_cast<size_t>(number)];
  if (server.life != Life::kUp) return false;
  return handle(job, server, message).kind != Answer::Kind::kWaits;
}

bool happen_to_server(const Job& job, const Event& event, State& state) {
  ServerState& server = state.servers[static_cast<size_t>(event.a)];
  if (event.kind == Kind::kStart) {
    if (server.life != Life::kDown) return false;
    start(job, server);
    return true;
  }
  if (server.life != Life::kUp) return false;
  switch (event.kind) {
    case Kind::kApply:
      return apply(job, server, state);
    case Kind::kCopy:
      return copy_snapshot(job, server);
    case Kind::kWritten:
      return written(server);
    case Kind::kEnd:
      return end(server);
    case Kind::kCrash:
      return crash(state, server);
    case Kind::kTimeOut:
    case Kind::kSilence:
      return silence(job, state, server, event.b, event.is_fault());
    case Kind::kDecideAlone:
      return decide_alone(job, server);
    default:
      return false;
  }
}

constexpr const char* kEvents[] = {"the call arrives",
                                   "asks where it is, or goes there",
                                   "agrees on a lost trainer",
                                   "applies the step",
                                   "copies a snapshot",
                                   "has written the snapshot",
                                   "ends",
                                   "starts again",
                                   "takes a silent trainer for lost",
                                   "decides alone",
                                   "crashes",
                                   "loses the request",
                                   "loses the answer",
                                   "gives up the call",
                                   "a late call arrives",
                                   "hears nothing of",
                                   "is killed",
                                   "is replaced",
                                   "all processes are stopped and started again"};

// Texts of all values, so that equal states have equal texts.
class Writer {
 public:
  template <typename... Values>
  void put(const Values&... values) {
    (one(static_cast<int64_t>(values)), ...);
  }
  void put(const History& history) {
    put(history.size());
    text_.append(history.begin(), history.end());
  }
  template <typename Numbers>
  void put_all(const Numbers& numbers) {
    put(numbers.size());
    for (const auto& number : numbers) put(number);
  }
  std::string take() { return std::move(text_); }

 private:
  // Small numbers take one byte.
  void one(int64_t value) {
    const auto bits = static_cast<uint64_t>(value + 1);
    if (bits < 0xff) {
      text_.push_back(static_cast<char>(bits));
      return;
    }
    text_.push_back(static_cast<char>(0xff));
    for (unsigned i = 0; i < 64; i += 8) text_.push_back(static_cast<char>(bits >> i & 0xffU));
  }

  std::string text_;
};

void put_snapshot(Writer& to, const Snapshot& snapshot) {
  to.put(snapshot.applied);
  to.put(snapshot.history);
  for (const ps::CallsRecord::Trainer& trainer : snapshot.calls.trainers) {
    to.put(trainer.incarnation, trainer.sent, trainer.fetched, trainer.low);
    to.put_all(trainer.done);
  }
}

void put_server(Writer& to, const State& state, const ServerState& server) {
  to.put(server.life, ps::term_of(server.epoch), server.epoch & 0xffffffffU, server.is_due,
         server.counts.applied, server.counts.held, server.term, server.writing.has_value(),
         server.disk.size(), server.counts.went_back_for.size());
  for (const auto& [endpoint, epoch] : server.counts.went_back_for)
    to.put(endpoint[0], ps::term_of(epoch), epoch & 0xffffffffU);
  to.put(server.history);
  to.put_all(server.slots);
  if (server.writing) put_snapshot(to, *server.writing);
  for (const Snapshot& snapshot : server.disk) put_snapshot(to, snapshot);
  for (int id = 0; id < server.trainers.count(); ++id) {
    const ps::Trainer& trainer = server.trainers.at(id);
    to.put(trainer.life, trainer.incarnation, trainer.window.low(), trainer.sent, trainer.fetched,
           trainer.confirmed, trainer.is_placed, trainer.is_unheard, trainer.settled_at,
           trainer.fetch_call);
    to.put_all(trainer.window.done());
    for (uint64_t i = 1; i <= state.incarnations; ++i)
      to.put(server.trainers.end_of(id, i).value_or(-2));
  }
}

void put_epoch(Writer& to, uint64_t epoch) {
  to.put(ps::term_of(epoch), epoch & 0xffffffffU);
}

void put_trainer(Writer& to, const TrainerState& trainer) {
  to.put(trainer.life, trainer.phase, trainer.incarnation, trainer.step, trainer.first,
         trainer.must_settle, trainer.has_joined, trainer.is_early, trainer.again, trainer.ahead,
         trainer.stage, trainer.loss_stage, trainer.loss.trainer, trainer.loss.incarnation,
         trainer.loss.steps.value_or(-2), trainer.lanes.size(), trainer.answers.size(),
         trainer.loss_answers.size());
  for (const Lane& lane : trainer.lanes) {
    to.put(lane.state, lane.sequence, lane.everywhere, lane.errors);
    put_epoch(to, lane.greeted);
  }
  for (const View& view : trainer.views) {
    put_epoch(to, view.epoch);
    put_epoch(to, view.recovers);
    to.put(view.sent, view.fetched, view.last_sent, view.sequence, view.fetch_sequence,
           view.send_sequence);
    to.put_all(view.pending);
    to.put(view.values);
  }
  for (const ps::protocol::HelloAnswer& answer : trainer.answers)
    to.put(answer.sent, answer.applied, answer.standing);
  for (const uint64_t epoch : trainer.epochs) put_epoch(to, epoch);
  for (const ps::protocol::LossAnswer& answer : trainer.loss_answers)
    to.put(answer.steps, answer.decided);
  for (const uint64_t epoch : trainer.loss_epochs) put_epoch(to, epoch);
}

}  // namespace

State::State(const Job& job)
    : crashes(job.crashes),
      restarts(job.restarts),
      cuts(job.cuts),
      lates(job.late),
      silences(job.silences),
      kills(job.kills) {
  for (int s = 0; s < job.servers; ++s) {
    ServerState& server = servers.emplace_back(job, s);
    server.epoch = ps::make_epoch(1, 1);
    if (job.snapshot_every > 0)
      server.disk.push_back({0, ps::record_calls(server.trainers, 0, true), {}});
  }
  for (int t = 0; t < job.trainers; ++t) trainers.push_back(process_of(job, *this));
}

std::vector<Event> all_events(const Job& job) {
  std::vector<Event> events = {{Kind::kRestart}};
  for (int t = 0; t < job.trainers; ++t) {
    for (const Kind kind : {Kind::kSettle, Kind::kKill, Kind::kReplace})
      events.push_back({kind, t});
    for (int s = 0; s < job.servers; ++s) {
      for (const Kind kind :
           {Kind::kCall, Kind::kAskLoss, Kind::kLoseRequest, Kind::kLoseAnswer, Kind::kDelay})
        events.push_back({kind, t, s});
      for (const Kind kind : {Kind::kTimeOut, Kind::kSilence}) events.push_back({kind, s, t});
    }
  }
  for (int s = 0; s < job.servers; ++s)
    for (const Kind kind : {Kind::kApply, Kind::kCopy, Kind::kWritten, Kind::kEnd, Kind::kStart,
                            Kind::kDecideAlone, Kind::kCrash})
      events.push_back({kind, s});
  events.push_back({Kind::kArrives});
  return events;
}

bool may_happen(const Job& job, const Event& event, const State& state) {
  const auto a = static_cast<size_t>(event.a);
  const auto b = static_cast<size_t>(event.b);
  switch (event.kind) {
    case Kind::kCall:
      return has_call(state.trainers[a], b);
    case Kind::kLoseRequest:
    case Kind::kLoseAnswer:
      return state.cuts > 0 && has_call(state.trainers[a], b);
    case Kind::kDelay:
      return state.lates > 0 && has_call(state.trainers[a], b);
    case Kind::kArrives:
      return !state.late.empty();
    case Kind::kSettle:
      return state.trainers[a].phase == TrainerState::Phase::kSettle || state.trainers[a].is_early;
    case Kind::kAskLoss:
      return job.elastic && state.trainers[a].life == TrainerLife::kRuns;
    case Kind::kKill:
      return state.kills > 0;
    case Kind::kRestart:
      return state.restarts > 0;
    case Kind::kReplace:
      return state.trainers[a].life == TrainerLife::kKilled;
    case Kind::kStart:
      return state.servers[a].life == Life::kDown;
    case Kind::kCopy:
      return state.servers[a].is_due;
    case Kind::kWritten:
      return state.servers[a].writing.has_value();
    case Kind::kCrash:
      return state.crashes > 0;
    case Kind::kSilence:
      return state.silences > 0;
    default:
      return state.servers[a].life == Life::kUp;
  }
}

bool happen(const Job& job, const Event& event, State& state) {
  switch (event.kind) {
    case Kind::kCall:
      return call(job, state, event.a, static_cast<size_t>(event.b), false);
    case Kind::kLoseAnswer:
      return state.cuts-- > 0 && call(job, state, event.a, static_cast<size_t>(event.b), true);
    case Kind::kLoseRequest:
    case Kind::kDelay:
      return lose_request(state, event);
    case Kind::kArrives:
      return arrives(job, state);
    case Kind::kSettle:
      return settle(job, state, event.a);
    case Kind::kAskLoss:
      return ask_loss(job, state, event.a, static_cast<size_t>(event.b));
    case Kind::kKill:
      return kill(state, state.trainers[static_cast<size_t>(event.a)]);
    case Kind::kRestart:
      return restart(job, state);
    case Kind::kReplace:
      return replace(job, state, state.trainers[static_cast<size_t>(event.a)]);
    default:
      return happen_to_server(job, event, state);
  }
}

bool is_final(const State& state) {
  return std::ranges::none_of(
             state.trainers,
             [](const TrainerState& trainer) { return trainer.life == TrainerLife::kRuns; }) &&
         std::ranges::all_of(state.servers, [](const ServerState& server) {
           return server.life == Life::kEnded || server.life == Life::kFailed;
         });
}

std::string text_of(const State& state) {
  Writer to;
  for (const ServerState& server : state.servers) put_server(to, state, server);
  for (const TrainerState& trainer : state.trainers) put_trainer(to, trainer);
  to.put(state.crashes, state.restarts, state.cuts, state.lates, state.silences, state.kills,
         state.incarnations, state.given_up, state.late.size());
  for (const auto& [server, message] : state.late) {
    to.put(server, message.method, message.trainer, message.incarnation, message.sequence,
           message.gradients, message.everywhere, message.stays);
    put_epoch(to, message.epoch);
  }
  return to.take();
}

std::string describe(const Event& event) {
  const char* const what = kEvents[static_cast<size_t>(event.kind)];
  switch (event.kind) {
    case Kind::kCall:
    case Kind::kLoseRequest:
    case Kind::kLoseAnswer:
    case Kind::kDelay:
    case Kind::kAskLoss:
      return fmt::format("trainer {} to server {}: {}", event.a, event.b, what);
    case Kind::kSettle:
    case Kind::kKill:
    case Kind::kReplace:
      return fmt::format("trainer {} {}", event.a, what);
    case Kind::kTimeOut:
    case Kind::kSilence:
      return fmt::format("server {} {}: trainer {}", event.a, what, event.b);
    case Kind::kArrives:
    case Kind::kRestart:
      return what;
    default:
      return fmt::format("server {} {}", event.a, what);
  }
}

}  // namespace millrace::explorer
