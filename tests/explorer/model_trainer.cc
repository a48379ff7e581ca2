// A trainer of the model: what ps/client/client.cc does around its decisions, and the steps of
// jobs/ps/trainer_job.cc.
#include "tests/explorer/model_trainer.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "ps/transport/epoch.h"

namespace millrace::explorer {
namespace {

using Phase = TrainerState::Phase;
using LaneState = Lane::State;

// Errors of the same run in a row after which a trainer ends.
constexpr int kMostErrors = 2;
constexpr int64_t kFarthestAhead = 8;

uint64_t new_number(View& view) {
  view.pending.insert(++view.sequence);
  return view.sequence;
}

bool has_sent_everywhere(const TrainerState& trainer) {
  return std::ranges::all_of(
      trainer.views, [&](const View& view) { return view.sent == trainer.views.front().sent; });
}

void begin(TrainerState& trainer, Phase phase) {
  trainer.phase = phase;
  const bool is_numbered = phase != Phase::kStay && phase != Phase::kLeave;
  for (size_t s = 0; s < trainer.lanes.size(); ++s) {
    trainer.lanes[s] = Lane{.state = LaneState::kCall,
                            .sequence = is_numbered ? new_number(trainer.views[s]) : 0,
                            .everywhere = has_sent_everywhere(trainer)};
  }
}

void begin_settling(TrainerState& trainer) {
  trainer.phase = Phase::kSettle;
  trainer.again = std::exchange(trainer.must_settle, false);
  trainer.ahead = 2;
  trainer.stage = 0;
  trainer.answers.clear();
  trainer.epochs.clear();
}

// The parameters of all servers have the same updates, and those of this trainer.
std::string check_values(const Job& job, const TrainerState& trainer, int id) {
  for (const View& view : trainer.views) {
    if (view.values != trainer.views.front().values)
      return fmt::format(
          "trainer {} gets parameters with the updates of other trainers from each "
          "server before step {}",
          id, trainer.step);
    // a process that would join after the last step is let in at the end of it
    const int64_t steps = std::min<int64_t>(trainer.step, job.steps);
    if (static_cast<int64_t>(view.values.size()) != steps)
      return fmt::format("trainer {} gets parameters of step {} before step {}", id,
                         view.values.size(), trainer.step);
    for (size_t step = 0; step < view.values.size(); ++step) {
      const bool must_have = static_cast<int64_t>(step) >= trainer.first;
      if (must_have && (view.values[step] >> static_cast<unsigned>(id) & 1U) == 0)
        return fmt::format("the update of trainer {} in step {} is lost", id, step);
      if (!job.elastic && view.values[step] != (1U << static_cast<unsigned>(job.trainers)) - 1)
        return fmt::format("step {} was applied without some trainer", step);
    }
  }
  return "";
}

// All calls of the phase have ended.
void next_phase(const Job& job, State& state, int id) {
  TrainerState& trainer = state.trainers[static_cast<size_t>(id)];
  if (trainer.phase == Phase::kFetch) ++trainer.step;
  switch (trainer.phase) {
    case Phase::kFirstFetch:
    case Phase::kFetch:
      state.violation = check_values(job, trainer, id);
      for (View& view : trainer.views) view.values.clear();
      return begin(trainer, trainer.step < job.steps ? Phase::kSend : Phase::kStay);
    case Phase::kSend:
      return begin(trainer, Phase::kFetch);
    case Phase::kStay:
      return begin(trainer, Phase::kLeave);
    case Phase::kLeave:
    case Phase::kSettle:
      trainer.life = TrainerState::Life::kDone;
  }
}

void end_if_over(const Job& job, State& state, int id) {
  TrainerState& trainer = state.trainers[static_cast<size_t>(id)];
  bool failed = false;
  for (const Lane& lane : trainer.lanes) {
    if (lane.state != LaneState::kOk && lane.state != LaneState::kFailed) return;
    failed |= lane.state == LaneState::kFailed;
  }
  if (trainer.is_early) return;  // one of the calls has not ended
  if (!failed) return next_phase(job, state, id);
  if (trainer.must_settle) return begin_settling(trainer);
  end_trainer(job, state, id, "its calls are refused");
}

// Client::note().
void note(TrainerState& trainer, size_t server, const Answer& answer) {
  View& view = trainer.views[server];
  if (trainer.phase == Phase::kSend) {
    ++view.sent;
    view.last_sent = trainer.step;
  } else if (trainer.phase == Phase::kFetch || trainer.phase == Phase::kFirstFetch) {
    ++view.fetched;
    view.last_sent = -1;
    view.values = answer.values;
  }
}

void end_lane(TrainerState& trainer, size_t server, LaneState outcome, const Answer& answer) {
  Lane& lane = trainer.lanes[server];
  if (outcome == LaneState::kOk) note(trainer, server, answer);
  trainer.views[server].pending.erase(lane.sequence);
  lane = Lane{.state = outcome};
}

// Client::greet_again().
void greet(TrainerState& trainer, size_t server, const Answer& answer) {
  View& view = trainer.views[server];
  Lane& lane = trainer.lanes[server];
  if (answer.kind != Answer::Kind::kOk) return;
  if (answer.epoch == view.epoch) {
    lane.state = lane.errors >= kMostErrors ? LaneState::kFailed : LaneState::kCall;
    if (lane.state == LaneState::kFailed) end_lane(trainer, server, LaneState::kFailed, answer);
    return;
  }
  lane.errors = 0;
  switch (ps::after_restart(answer.hello, view.sent, view.last_sent >= 0)) {
    case ps::AfterRestart::kMustSettle:
      trainer.must_settle = true;
      trainer.is_early = true;
      return end_lane(trainer, server, LaneState::kFailed, answer);
    case ps::AfterRestart::kSendAgain:
      if (view.recovers != answer.epoch) {
        view.recovers = answer.epoch;
        view.fetch_sequence = new_number(view);
        view.send_sequence = new_number(view);
      }
      lane.greeted = answer.epoch;
      lane.state = LaneState::kFetchAgain;
      return;
    case ps::AfterRestart::kWasSent:
      view.epoch = answer.epoch;
      if (trainer.phase == Phase::kSend) return end_lane(trainer, server, LaneState::kOk, answer);
      [[fallthrough]];
    case ps::AfterRestart::kRepeat:
      view.epoch = answer.epoch;
      lane.state = LaneState::kCall;
  }
}

// Client::recover().
void recovered(TrainerState& trainer, size_t server, const Answer& answer) {
  View& view = trainer.views[server];
  Lane& lane = trainer.lanes[server];
  if (answer.kind != Answer::Kind::kOk) {
    lane.state = LaneState::kGreet;
  } else if (lane.state == LaneState::kFetchAgain) {
    lane.state = LaneState::kSendAgain;
  } else {
    view.pending.erase(view.fetch_sequence);
    view.pending.erase(view.send_sequence);
    view.epoch = lane.greeted;
    lane.state = LaneState::kCall;
  }
}

ps::Request request_of(const TrainerState& trainer, int id, ps::Method method, uint64_t epoch) {
  ps::Request request;
  request.method = method;
  request.caller = {"", id, trainer.incarnation};
  request.epoch = epoch;
  return request;
}

}  // namespace

void end_trainer(const Job& job, State& state, int id, const std::string& why) {
  TrainerState& trainer = state.trainers[static_cast<size_t>(id)];
  trainer.life = TrainerState::Life::kEnded;
  const bool given_up = (state.given_up >> static_cast<unsigned>(id) & 1U) != 0;
  // the job may be over before another process can take part
  const bool is_late =
      !trainer.has_joined && trainer.incarnation > static_cast<uint64_t>(job.trainers);
  if (!job.may_end && !given_up && !is_late && state.violation.empty())
    state.violation = fmt::format("trainer {} ends: {}", id, why);
}

Message message_of(const TrainerState& trainer, int id, size_t server) {
  const View& view = trainer.views[server];
  const Lane& lane = trainer.lanes[server];
  Message message{.trainer = id,
                  .incarnation = trainer.incarnation,
                  .epoch = view.epoch,
                  .sequence = lane.sequence,
                  .everywhere = lane.everywhere};
  const bool again = lane.state != LaneState::kCall;
  if (again) {
    const bool sends = lane.state == LaneState::kSendAgain;
    message.method = sends ? ps::Method::kSendBarrier : ps::Method::kFetchBarrier;
    message.gradients = view.last_sent;
    message.sequence = sends ? view.send_sequence : view.fetch_sequence;
    message.epoch = lane.greeted;
    message.everywhere = has_sent_everywhere(trainer);
    return message;
  }
  if (trainer.phase == Phase::kSend) {
    message.method = ps::Method::kSendBarrier;
    message.gradients = trainer.step;
  } else if (trainer.phase == Phase::kStay || trainer.phase == Phase::kLeave) {
    message.method = ps::Method::kComplete;
    message.stays = trainer.phase == Phase::kStay;
  } else {
    message.method = ps::Method::kFetchBarrier;
  }
  return message;
}

bool has_call(const TrainerState& trainer, size_t server) {
  if (trainer.life != TrainerState::Life::kRuns || trainer.phase == Phase::kSettle) return false;
  const LaneState state = trainer.lanes[server].state;
  return state != LaneState::kOk && state != LaneState::kFailed;
}

void lose(TrainerState& trainer, size_t server) {
  Lane& lane = trainer.lanes[server];
  lane.state = LaneState::kGreet;
}

bool call(const Job& job, State& state, int id, size_t server, bool loses_answer) {
  TrainerState& trainer = state.trainers[static_cast<size_t>(id)];
  if (!has_call(trainer, server)) return false;
  ServerState& target = state.servers[server];
  Lane& lane = trainer.lanes[server];
  if (target.life != ServerState::Life::kUp) {
    // all servers know that it makes no more steps, and one that is gone has ended for that reason
    const bool is_over = trainer.phase == Phase::kLeave && !trainer.must_settle;
    const bool is_gone = target.life != ServerState::Life::kDown;
    if (loses_answer || (!is_over && !is_gone)) return false;
    end_lane(trainer, server, is_over ? LaneState::kOk : LaneState::kFailed, {});
    end_if_over(job, state, id);
    return true;
  }
  const LaneState before = lane.state;
  if (before == LaneState::kGreet && trainer.must_settle) {
    end_lane(trainer, server, LaneState::kFailed, {});
    end_if_over(job, state, id);
    return !loses_answer;
  }
  const Answer answer = before == LaneState::kGreet
                            ? hello(job, target, trainer, id)
                            : handle(job, target, message_of(trainer, id, server));
  if (answer.kind == Answer::Kind::kWaits) return !loses_answer && before != LaneState::kGreet;
  if (loses_answer) {
    lose(trainer, server);
    return true;
  }
  if (before == LaneState::kGreet) {
    greet(trainer, server, answer);
    if (trainer.must_settle && job.durable && job.snapshot_every == 1)
      state.violation = fmt::format("trainer {} has to undo a step that was on the disk", id);
  } else if (before != LaneState::kCall) {
    recovered(trainer, server, answer);
  } else if (answer.kind == Answer::Kind::kOk) {
    end_lane(trainer, server, LaneState::kOk, answer);
  } else if (answer.kind == Answer::Kind::kFatal) {
    end_lane(trainer, server, LaneState::kFailed, answer);
  } else {
    ++lane.errors;
    lane.state = LaneState::kGreet;
  }
  end_if_over(job, state, id);
  return true;
}

namespace {

void end_early(const Job& job, State& state, int id) {
  TrainerState& trainer = state.trainers[static_cast<size_t>(id)];
  trainer.is_early = false;
  trainer.stage = 0;
  trainer.answers.clear();
  trainer.epochs.clear();
  end_if_over(job, state, id);
}

// Client::go_back_early().
bool settle_early(const Job& job, State& state, int id) {
  TrainerState& trainer = state.trainers[static_cast<size_t>(id)];
  const size_t count = state.servers.size();
  const size_t number = trainer.stage % count;
  ServerState& server = state.servers[number];
  if (server.life == ServerState::Life::kDown) return false;
  Answer answer;
  answer.kind = Answer::Kind::kFatal;
  if (server.life == ServerState::Life::kUp && trainer.stage < count) {
    answer = hello(job, server, trainer, id);
  } else if (server.life == ServerState::Life::kUp) {
    const ps::Settling plan = ps::plan_settling(trainer.answers, true, 2);
    const View& view = trainer.views[number];
    const uint64_t settled = view.pending.empty() ? view.sequence : *view.pending.begin() - 1;
    answer = go_to(job, server, request_of(trainer, id, ps::Method::kGoTo, trainer.epochs[number]),
                   {plan.step, settled, std::to_string(plan.reason), trainer.epochs[plan.reason]});
  }
  if (answer.kind == Answer::Kind::kWaits) return false;
  const bool joins = answer.hello.standing == ps::protocol::HelloAnswer::Standing::kJoins;
  if (trainer.stage < count) {
    trainer.answers.push_back(answer.hello);
    trainer.epochs.push_back(answer.epoch);
  }
  ++trainer.stage;
  if (answer.kind != Answer::Kind::kOk || joins || trainer.stage == 2 * count)
    end_early(job, state, id);
  return true;
}

// Client::check_none_lost_steps(), which asks all servers, in one event.
bool any_has_lost_steps(const State& state, int64_t newest) {
  return std::ranges::any_of(state.servers, [&](const ServerState& server) {
    return ps::has_lost_steps(server.counts.applied, newest);
  });
}

}  // namespace

// Client::settle() and agree().
bool settle(const Job& job, State& state, int id) {
  TrainerState& trainer = state.trainers[static_cast<size_t>(id)];
  if (trainer.life != TrainerState::Life::kRuns) return false;
  if (trainer.is_early) return settle_early(job, state, id);
  if (trainer.phase != Phase::kSettle) return false;
  const size_t count = state.servers.size();
  const size_t number = trainer.stage % count;
  ServerState& server = state.servers[number];
  View& view = trainer.views[number];
  if (server.life == ServerState::Life::kDown) return false;
  Answer answer{.kind = Answer::Kind::kFatal, .why = "a server has ended"};
  const bool greets = trainer.stage < count;
  if (server.life == ServerState::Life::kUp && greets) answer = hello(job, server, trainer, id);
  ps::Settling plan;
  if (!greets) {
    plan = ps::plan_settling(trainer.answers, trainer.again, trainer.ahead);
    view.epoch = trainer.epochs[number];
    answer = {.epoch = view.epoch};
    const uint64_t settled = view.pending.empty() ? view.sequence : *view.pending.begin() - 1;
    if (trainer.stage == count && plan.joins && any_has_lost_steps(state, plan.newest))
      answer.kind = Answer::Kind::kRefused;
    else if (!plan.servers_agree)
      answer =
          go_to(job, server, request_of(trainer, id, ps::Method::kGoTo, view.epoch),
                {plan.step, settled, std::to_string(plan.reason), trainer.epochs[plan.reason]});
  }
  if (answer.kind == Answer::Kind::kWaits) return false;
  if (answer.kind == Answer::Kind::kFatal) {
    end_trainer(job, state, id, "it cannot settle: " + answer.why);
    return true;
  }
  if (answer.kind == Answer::Kind::kRefused) {
    trainer.ahead = std::min(2 * trainer.ahead, kFarthestAhead);
    trainer.stage = 0;
    trainer.answers.clear();
    trainer.epochs.clear();
    return true;
  }
  ++trainer.stage;
  if (greets) {
    trainer.answers.push_back(answer.hello);
    trainer.epochs.push_back(answer.epoch);
    return true;
  }
  view.epoch = answer.epoch;
  view.sent = view.fetched = plan.step;
  view.last_sent = -1;
  view.recovers = view.fetch_sequence = view.send_sequence = 0;
  if (trainer.stage < 2 * count) return true;
  if (std::ranges::any_of(trainer.answers, [](const auto& each) {
        return each.standing == ps::protocol::HelloAnswer::Standing::kJoins;
      }))
    trainer.first = plan.step;
  trainer.step = plan.step;
  trainer.has_joined = true;
  trainer.answers.clear();
  trainer.epochs.clear();
  trainer.stage = 0;
  begin(trainer, Phase::kFirstFetch);
  return true;
}

// Client::send_heartbeat() and agree_on_loss(). `from` is the server whose suspect it reads about.
bool ask_loss(const Job& job, State& state, int id, size_t from) {
  TrainerState& trainer = state.trainers[static_cast<size_t>(id)];
  const size_t count = state.servers.size();
  if (trainer.life != TrainerState::Life::kRuns) return false;
  if (trainer.loss_stage < 0) {
    const ServerState& server = state.servers[from];
    const bool heard = server.life == ServerState::Life::kUp &&
                       trainer.views[from].epoch == server.epoch && trainer.phase != Phase::kSettle;
    for (int other = 0; heard && other < job.trainers && trainer.loss_stage < 0; ++other) {
      const ps::Trainer& lost = server.trainers.at(other);
      if (other == id || lost.life != ps::Trainer::Life::kSuspected) continue;
      trainer.loss_stage = 0;
      trainer.loss = {.trainer = other, .incarnation = lost.incarnation};
    }
    if (trainer.loss_stage < 0) return false;
  } else if (from != 0) {
    return false;
  }
  const size_t number = static_cast<size_t>(trainer.loss_stage) % count;
  const bool asks = trainer.loss_stage < static_cast<int>(count);
  ServerState& server = state.servers[number];
  Answer answer{.kind = Answer::Kind::kRefused};
  if (server.life == ServerState::Life::kUp) {
    const uint64_t known = trainer.views[number].epoch;
    const uint64_t asked = known == server.epoch ? known : ps::any_run_of(known);
    const uint64_t epoch = asks ? asked : trainer.loss_epochs[number];
    if (!asks) trainer.loss.steps = ps::last_step_of(trainer.loss_answers);
    answer =
        settle_loss(job, server, request_of(trainer, id, ps::Method::kLoss, epoch), trainer.loss);
  }
  if (server.life == ServerState::Life::kFailed && !job.may_end && state.violation.empty())
    state.violation = fmt::format("server {} ends, because it lacks an update", number);
  ++trainer.loss_stage;
  if (answer.kind == Answer::Kind::kOk && asks) {
    trainer.loss_answers.push_back(answer.loss);
    trainer.loss_epochs.push_back(answer.epoch);
  }
  if (answer.kind != Answer::Kind::kOk && asks) trainer.loss_stage = static_cast<int>(2 * count);
  if (trainer.loss_stage < static_cast<int>(2 * count)) return true;
  trainer.loss_stage = -1;
  trainer.loss = {};
  trainer.loss_answers.clear();
  trainer.loss_epochs.clear();
  return true;
}

}  // namespace millrace::explorer
