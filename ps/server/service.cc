#include "ps/server/service.h"

#include <algorithm>
#include <utility>

#include "framework/base/errors.h"
#include "ps/kill_points.h"
#include "ps/protocol/answers.h"
#include "ps/protocol/pack.h"
#include "ps/server/check_plan.h"
#include "ps/table/table_handler.h"
#include "ps/transport/epoch.h"

// The table of methods, checking of calls, detection of repeats, and the loop that applies steps.
// The methods themselves are in service_methods.cc and service_run.cc.
namespace millrace::ps {
namespace {

Status server_stops() {
  return {StatusCode::kDistributed, "the server is stopping"};
}

}  // namespace

struct Service::MethodRow {
  /// Who may make the call: any caller, or a trainer that has sent a hello.
  enum class From { kAnyCaller, kTrainer };
  Method method;
  From from;
  Status (*carry_out)(Service& service, const Call& call);
};

template <typename Message, Status (Service::*handler)(const Service::Call&, const Message&)>
Status Service::unpack_and_handle(Service& service, const Call& call) {
  MILLRACE_ASSIGN_OR_RETURN(const Message message, protocol::unpack<Message>(call.request));
  return (service.*handler)(call, message);
}

// The methods of a server: which message each has, and what handles it.
const Service::MethodRow* Service::find_method(Method method) {
  using S = Service;
  using From = MethodRow::From;
  static constexpr MethodRow kRows[] = {
      {Method::kHello, From::kAnyCaller, unpack_and_handle<protocol::Hello, &S::hello>},
      {Method::kSend, From::kTrainer, unpack_and_handle<protocol::Send, &S::send>},
      {Method::kGet, From::kTrainer, unpack_and_handle<protocol::Get, &S::get>},
      {Method::kGetNoBarrier, From::kTrainer, unpack_and_handle<protocol::GetNow, &S::get_now>},
      {Method::kPrefetch, From::kTrainer, unpack_and_handle<protocol::Prefetch, &S::prefetch>},
      {Method::kSendBarrier, From::kTrainer,
       unpack_and_handle<protocol::SendBarrier, &S::send_barrier>},
      {Method::kFetchBarrier, From::kTrainer,
       unpack_and_handle<protocol::FetchBarrier, &S::fetch_barrier>},
      {Method::kComplete, From::kTrainer, unpack_and_handle<protocol::Complete, &S::complete>},
      {Method::kCheckpoint, From::kTrainer,
       unpack_and_handle<protocol::Checkpoint, &S::checkpoint>},
      {Method::kCount, From::kTrainer, unpack_and_handle<protocol::Count, &S::count>},
      {Method::kRun, From::kTrainer, unpack_and_handle<protocol::Run, &S::run>},
      {Method::kPull, From::kTrainer, unpack_and_handle<protocol::Pull, &S::pull>},
      {Method::kPush, From::kTrainer, unpack_and_handle<protocol::Push, &S::push>},
      {Method::kTableBarrier, From::kTrainer, unpack_and_handle<protocol::Barrier, &S::barrier>},
      {Method::kWatch, From::kAnyCaller, unpack_and_handle<protocol::Watch, &S::watch>},
      {Method::kStop, From::kAnyCaller, unpack_and_handle<protocol::Stop, &S::end_by_call>},
      {Method::kGoTo, From::kTrainer, unpack_and_handle<protocol::GoTo, &S::go_to>},
      {Method::kLoss, From::kTrainer, unpack_and_handle<protocol::Loss, &S::agree_on_loss>},
  };
  const auto* const found =
      llvm::find_if(kRows, [&](const MethodRow& row) { return row.method == method; });
  return found == std::end(kRows) ? nullptr : found;
}

namespace {

// Options that only some kinds of servers read.
Status check_options_read(const ServerCore& core) {
  const ServerOptions& options = core.options;
  if (options.dc_lambda != 1 && !core.plan.dc_asgd)
    core.log("dc_lambda has no effect: the program has no delay compensation (enable_dc_asgd)");
  if (core.plan.mode == ServerMode::kSync || options.snapshot_every == 0 ||
      options.snapshot_root.empty())
    return Ok();
  if (options.snapshot_interval.count() == 0)
    return InvalidArgument(
               "snapshots every {} steps: this server is asynchronous and counts no steps, so it "
               "would take none",
               options.snapshot_every)
        .with_hint("expected an interval: pserver --snapshot-interval-ms");
  core.log("snapshot_every has no effect: an asynchronous server counts no steps");
  return Ok();
}

}  // namespace

StatusOr<std::unique_ptr<Service>> Service::create(const executor::Runtime& runtime, const Op& op,
                                                   Scope& scope, ServerOptions options) {
  MILLRACE_ASSIGN_OR_RETURN(std::unique_ptr<ServerCore> core,
                            ServerCore::create(runtime, op, scope, std::move(options)));
  std::unique_ptr<Service> service(new Service(std::move(core)));
  ServerCore& shared = *service->core_;
  if (shared.plan.mode == ServerMode::kSync) {
    MILLRACE_ASSIGN_OR_RETURN(service->steps_, SyncSteps::create(shared));
  } else {
    MILLRACE_ASSIGN_OR_RETURN(service->pushes_, AsyncPushes::create(shared));
  }
  MILLRACE_RETURN_IF_ERROR(service->restore());
  MILLRACE_RETURN_IF_ERROR(check_options_read(shared));
  service->started_ = service->reported_ = shared.now();
  return service;
}

Status Service::handle(const Request& request, Deadline deadline, ReplySink& reply) {
  Status status = answer(request, deadline, reply);
  // the trainer ignores the result of a heartbeat
  if (status.ok() || request.method == Method::kHello) return status;
  const std::lock_guard lock(core_->mutex);
  if (!core_->failure.ok()) {
    notified_.insert(request.caller.trainer);
    core_->changed.notify_all();
  }
  return status;
}

StatusOr<bool> Service::knows(const Request& envelope) const {
  const MethodRow* const row = find_method(envelope.method);
  if (row == nullptr) return Unimplemented("method '{}'", method_name(envelope.method));
  const std::lock_guard lock(core_->mutex);
  if (core_->trainers.knows(envelope.caller)) return true;
  if (row->from == MethodRow::From::kAnyCaller) return false;
  MILLRACE_RETURN_IF_ERROR(core_->check_epoch(envelope));
  MILLRACE_RETURN_IF_ERROR(core_->trainers.check_served(envelope));
  return false;
}

void Service::heard(const Request& envelope) {
  const std::lock_guard lock(core_->mutex);
  if (core_->trainers.knows(envelope.caller))
    core_->trainers.at(envelope.caller.trainer).seen = core_->now();
}

Status Service::answer(const Request& request, Deadline deadline, ReplySink& reply) {
  reply.set_epoch(core_->epoch);
  const MethodRow* const row = find_method(request.method);
  if (row == nullptr) return Unimplemented("method '{}'", method_name(request.method));
  const Call call{request, deadline, reply};
  if (row->from == MethodRow::From::kAnyCaller) return row->carry_out(*this, call);
  MILLRACE_RETURN_IF_ERROR(admit(request, deadline));
  reach(core_->options.kill_point, "server/before-call");
  Status status = is_numbered(request) ? once(*row, call) : row->carry_out(*this, call);
  reach(core_->options.kill_point, "server/before-answer");
  const std::lock_guard lock(core_->mutex);
  Trainer& trainer = core_->trainers.at(request.caller.trainer);
  // a replacement may be waiting for the last call of the trainer that it replaces
  if (--trainer.inside == 0 && trainer.life == Trainer::Life::kLost) core_->changed.notify_all();
  return status;
}

Status Service::admit(const Request& request, Deadline deadline) {
  std::unique_lock lock(core_->mutex);
  MILLRACE_RETURN_IF_ERROR(wait_for_term(lock, deadline));
  (void)check_after_pause();  // a trainer that was lost is to hear that, not this failure
  MILLRACE_RETURN_IF_ERROR(end_if_superseded(request));
  MILLRACE_ASSIGN_OR_RETURN(Trainer* const trainer, core_->trainers.find(request, core_->now()));
  MILLRACE_RETURN_IF_ERROR(Status(core_->failure));
  ++trainer->inside;
  return Ok();
}

Status Service::end_if_superseded(const Request& request) {
  if (core_->failure.ok() && core_->is_superseded_by(request) &&
      core_->trainers.check(request.caller).ok()) {
    core_->failure = core_->superseded(term_of(request.epoch));
    core_->changed.notify_all();
  }
  return core_->check_epoch(request);
}

Status Service::hello(const Call& call, const protocol::Hello& message) {
  const Caller& caller = call.request.caller;
  std::unique_lock lock(core_->mutex);
  MILLRACE_RETURN_IF_ERROR(wait_for_term(lock, call.deadline));
  MILLRACE_RETURN_IF_ERROR(check_after_pause());
  if (Status status = end_if_superseded(call.request); !status.ok()) {
    // the heartbeat of a trainer that has made no call since this server was started again
    if (core_->trainers.knows(caller)) core_->trainers.at(caller.trainer).seen = core_->now();
    return status;
  }
  MILLRACE_RETURN_IF_ERROR(check_plan(*core_, caller.trainer, message.plan));
  const auto must_wait = [&] {
    return steps_ != nullptr ? steps_->rules().must_wait(caller)
                             : core_->trainers.must_wait(caller);
  };
  if (must_wait()) {
    const int id = caller.trainer;
    core_->log(fmt::format(
        "another process wants to replace trainer {} and waits until that is lost", id));
    MILLRACE_RETURN_IF_ERROR(core_->wait(
        lock, call.deadline, [&] { return !must_wait(); },
        [&] {
          return fmt::format("the end of {}, which another process wants to replace",
                             core_->trainers.describe(id, core_->now()));
        }));
  }
  MILLRACE_RETURN_IF_ERROR(core_->trainers.hello(caller, core_->now(), message));
  Trainer& trainer = core_->trainers.at(caller.trainer);
  const bool joins = trainer.life == Trainer::Life::kJoining;
  // the last calls of the trainer that it replaces may have left something
  if (joins && !trainer.is_placed && steps_ != nullptr) steps_->drop_partial(caller.trainer);
  // barriers of typed tables do not wait for a lost trainer, but for its replacement
  if (joins && !trainer.is_placed && core_->options.tables != nullptr)
    MILLRACE_RETURN_IF_ERROR(core_->options.tables->join(caller.trainer));
  if (joins && steps_ == nullptr) trainer.life = Trainer::Life::kLive;
  protocol::HelloAnswer answer;
  answer.sent = trainer.sent;
  if (steps_ != nullptr) answer = steps_->rules().greeting(caller.trainer);
  // this server was started again without a snapshot: trainer 0 has to set its tables first
  if (steps_ != nullptr && !joins && !has_values() && (message.has_fetched || message.sent > 0))
    answer.standing = protocol::HelloAnswer::Standing::kMustGoBack;
  if (joins && steps_ == nullptr) answer.standing = protocol::HelloAnswer::Standing::kJoins;
  answer.mode = core_->plan.mode;
  put_answer(answer, call.reply);
  core_->changed.notify_all();
  return Ok();
}

// A call with a sequence number. A repeat waits for the first call and then gets the same response.
Status Service::once(const MethodRow& row, Call call) {
  const Request& request = call.request;
  SequenceWindow::Seen seen = SequenceWindow::Seen::kRunning;
  const bool changes_vars = pushes_ != nullptr && request.method != Method::kTableBarrier;
  {
    std::unique_lock lock(core_->mutex);
    SequenceWindow& window = core_->trainers.at(request.caller.trainer).window;
    MILLRACE_RETURN_IF_ERROR(core_->wait_for(
        request, lock, call.deadline,
        [&] {
          if (changes_vars && freezing_) return false;
          if (going_back_) return false;
          seen = window.begin(request.sequence);
          return seen != SequenceWindow::Seen::kRunning;
        },
        [&] { return fmt::format("call {}, which is in progress", request.sequence); }));
    if (seen == SequenceWindow::Seen::kTooMany) return SequenceWindow::too_many(request.sequence);
    ++inside_;
    if (changes_vars) ++changing_;
  }
  call.repeat = seen == SequenceWindow::Seen::kDone;
  Status status = row.carry_out(*this, call);
  const std::lock_guard lock(core_->mutex);
  --inside_;
  if (changes_vars) --changing_;
  core_->changed.notify_all();
  Trainer& trainer = core_->trainers.at(request.caller.trainer);
  if (!trainer.end_call(request, call.repeat, status.ok()))
    return status.ok() ? core_->check_served(request) : status;
  if (status.ok()) ++(call.repeat ? repeats_ : carried_out_);
  return status;
}

Status Service::serve() {
  std::unique_lock lock(core_->mutex);
  if (core_->failure.ok()) core_->failure = claim_term();
  while (core_->failure.ok() && !stopping_ && !core_->trainers.all_gone()) {
    if (!check_after_pause().ok()) break;
    if (Status status = take_first(lock); !status.ok()) {
      core_->failure = std::move(status);
      break;
    }
    if (steps_ != nullptr && !going_back_ && steps_->rules().is_ready()) {
      Status status = steps_->apply(lock);
      if (status.ok()) status = snapshot(lock, /*now=*/false);
      if (!status.ok()) core_->failure = std::move(status);
      continue;
    }
    core_->changed.wait_for(lock, std::chrono::milliseconds(500));
    Status status = check_after_pause();
    if (status.ok()) status = check_trainers();
    publish();
    // synchronous servers take snapshots at the end of steps
    if (status.ok() && steps_ == nullptr) status = snapshot(lock, /*now=*/false);
    if (!status.ok() && core_->failure.ok()) core_->failure = std::move(status);
  }
  if (core_->failure.ok() && !stopping_ && core_->trainers.all_lost())
    core_->failure = lost_everybody(lock);
  if (core_->failure.ok() && stopping_) {
    if (Status status = snapshot(lock, /*now=*/true); !status.ok())
      core_->log("the final snapshot could not be written: " + status.message());
  }
  publish();
  Status result = core_->failure;
  if (core_->options.tables != nullptr && !(result.ok() && core_->trainers.all_gone()))
    core_->options.tables->end(result.ok() ? server_stops() : result);
  if (metrics_ != nullptr) {
    metrics_->health().ready = false;
    if (!result.ok()) metrics_->health().live = false;
  }
  if (!result.ok()) wait_until_notified(lock);
  finished_ = result.ok() && !stopping_;
  if (core_->failure.ok()) {
    core_->failure = stopping_
                         ? server_stops()
                         : Status(StatusCode::kDistributed, "all trainers have left the server");
  }
  core_->changed.notify_all();
  return result;
}

// Otherwise, trainers that are between two calls would lose the connection without knowing why.
void Service::wait_until_notified(std::unique_lock<std::mutex>& lock) {
  constexpr std::chrono::seconds kNotifyTimeout{5};
  core_->changed.notify_all();
  core_->changed.wait_for(lock, kNotifyTimeout, [this] {
    if (stopping_) return true;
    for (int id = 0; id < core_->trainers.count(); ++id) {
      const Trainer::Life life = core_->trainers.at(id).life;
      const bool is_here = life == Trainer::Life::kLive || life == Trainer::Life::kGathering;
      if (is_here && notified_.count(id) == 0) return false;
    }
    return true;
  });
}

void Service::stop() {
  const std::lock_guard lock(core_->mutex);
  stopping_ = true;
  core_->changed.notify_all();
}

Status Service::check_trainers() {
  const Clock::time_point now = core_->now();
  const ServerOptions& options = core_->options;
  Trainers& trainers = core_->trainers;
  const auto limit = options.silence_timeout;
  // a trainer that was never heard must not end those that wait for it
  const bool starts =
      (options.start_timeout.count() > 0 && now - started_ > options.start_timeout) ||
      (options.elastic && steps_ != nullptr && steps_->has_waited_half(now));
  for (int id = 0; id < trainers.count(); ++id) {
    Trainer& trainer = trainers.at(id);
    const bool absent = trainer.life == Trainer::Life::kAbsent;
    const bool is_silent = limit.count() > 0 && now - trainer.seen > limit;
    // heartbeats to the process that served before show that it runs, but has not called since
    const bool runs = trainer.incarnation != 0 && limit.count() > 0 && !is_silent;
    const bool silent =
        (trainer.life == Trainer::Life::kLive || trainer.life == Trainer::Life::kGathering ||
         trainer.life == Trainer::Life::kJoining) &&
        is_silent;
    if (!(absent && starts && !runs) && !silent) continue;
    const std::string who = trainers.describe(id, now);
    if (!options.elastic) {
      return {StatusCode::kDistributed,
              fmt::format(
                  "{} is lost: no call for {} s", who,
                  static_cast<double>((absent ? options.start_timeout : limit).count()) / 1000)};
    }
    MILLRACE_RETURN_IF_ERROR(give_up(id));
  }
  MILLRACE_RETURN_IF_ERROR(give_up_suspects());
  if (steps_ != nullptr && steps_->rules().admit_joining()) core_->changed.notify_all();
  if (options.report_interval.count() != 0 && now - reported_ >= options.report_interval)
    report_waiting(now);
  return Ok();
}

void Service::report_waiting(Clock::time_point now) {
  const Trainers& trainers = core_->trainers;
  reported_ = now;
  const std::string absent = trainers.list(
      now, [](const Trainer& trainer) { return trainer.life == Trainer::Life::kAbsent; });
  if (!absent.empty()) core_->log("this server waits for " + absent);
  if (steps_ == nullptr) return;
  const int64_t applied = steps_->applied();
  const auto waits = [&](const Trainer& trainer) { return trainer.sent > applied; };
  const std::string waiting = trainers.list(now, waits);
  const std::string late = steps_->describe_late(now);
  if (!waiting.empty() && !late.empty())
    core_->log(fmt::format("step {}: {} wait for {}", applied, waiting, late));
}

}  // namespace millrace::ps
