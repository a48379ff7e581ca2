#include "ps/client/client.h"

#include <algorithm>
#include <random>
#include <thread>
#include <utility>

#include "framework/base/errors.h"
#include "ps/client/decisions.h"
#include "ps/kill_points.h"
#include "ps/transport/epoch.h"

namespace millrace::ps {
namespace {

using SteadyClock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kClientLongestPause{500};
// A replacement trainer joins this many steps later, so that all servers learn of it before that
// step. The number doubles with each attempt where they did not.
constexpr int64_t kStepsAhead = 2;

void reach_before(const std::shared_ptr<KillPoint>& point, Method method) {
  if (point == nullptr) return;
  if (method == Method::kFetchBarrier) point->reach("trainer/before-fetch");
  if (method == Method::kSendBarrier) point->reach("trainer/before-send");
  if (method == Method::kPrefetch || method == Method::kPull) point->reach("trainer/before-lookup");
  if (method == Method::kComplete) point->reach("trainer/before-complete");
}

void reach_after(const std::shared_ptr<KillPoint>& point, Method method) {
  if (point == nullptr) return;
  if (method == Method::kFetchBarrier) point->reach("trainer/after-fetch");
  if (method == Method::kSendBarrier) point->reach("trainer/after-send");
  if (method == Method::kComplete) point->reach("trainer/after-complete");
}

uint64_t new_incarnation() {
  std::random_device device;
  return (uint64_t{device()} << 32U | device()) | 1U;
}

}  // namespace

Client::Client(std::shared_ptr<Transport> transport, ClientOptions options)
    : transport_(std::move(transport)), options_(std::move(options)) {
  if (options_.incarnation == 0) options_.incarnation = new_incarnation();
  if (options_.heartbeat.count() > 0)
    heartbeat_thread_ = std::thread([this] { send_heartbeats(); });
}

Client::~Client() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  if (heartbeat_thread_.joinable()) heartbeat_thread_.join();
}

StatusOr<Client::Server*> Client::server(const std::string& endpoint) {
  const std::lock_guard lock(mutex_);
  std::unique_ptr<Server>& server = servers_[endpoint];
  if (server == nullptr) {
    auto made = std::make_unique<Server>();
    MILLRACE_ASSIGN_OR_RETURN(made->channel, transport_->connect(endpoint));
    if (const auto known = plan_.find(endpoint); known != plan_.end()) made->plan = known->second;
    server = std::move(made);
  }
  return server.get();
}

uint64_t Client::new_number(Server& server) {
  const std::lock_guard lock(server.numbers);
  server.pending.insert(++server.sequence);
  return server.sequence;
}

// No call up to this number will be repeated.
uint64_t Client::settled_number(Server& server) {
  const std::lock_guard lock(server.numbers);
  return server.pending.empty() ? server.sequence : *server.pending.begin() - 1;
}

Request Client::hello_of(Server& server, bool is_heartbeat) const {
  const int64_t sent = server.sent;
  Request request =
      protocol::pack(protocol::Hello{.has_fetched = server.fetched > sent,
                                     .sent = sent,
                                     .settled = settled_number(server),
                                     .plan = is_heartbeat ? PlanFacts() : server.plan});
  // a hello is for any run, but not for a server that another one has replaced
  request.epoch = make_epoch(server.term, 0);
  request.caller = {options_.job, options_.trainer, options_.incarnation};
  request.step = step_;
  return request;
}

StatusOr<Client::Greeting> Client::read_greeting(const Reply& reply) {
  MILLRACE_ASSIGN_OR_RETURN(const protocol::HelloAnswer answer, protocol::hello_answer(reply));
  return Greeting{reply.epoch, answer};
}

Status Client::ask(Server& server, const Request& request, Deadline deadline, Reply& reply) {
  reply.epoch = 0;
  Status status = server.channel->call(request, deadline, reply);
  if (reply.epoch == 0) return status;
  const uint64_t term = term_of(reply.epoch);
  uint64_t seen = server.term;
  while (term > seen && !server.term.compare_exchange_weak(seen, term)) {
  }
  if (term >= seen) return status;
  return Status(StatusCode::kDistributed,
                fmt::format("the server at {} has term {}, but another one with term {} has "
                            "answered in its place",
                            server.channel->endpoint(), term, seen))
      .with_hint("the process at this address was paused or cut off, and must end");
}

StatusOr<Client::Greeting> Client::say_hello(Server& server, Deadline deadline) {
  Reply reply;
  MILLRACE_RETURN_IF_ERROR(ask(server, hello_of(server), deadline, reply));
  return read_greeting(reply);
}

Status Client::greet(Server& server, Deadline deadline) {
  const std::lock_guard lock(server.hello);
  if (server.greeted) return Ok();
  Request hello = hello_of(server);
  Reply reply;
  MILLRACE_RETURN_IF_ERROR(exchange(server, hello, deadline, reply));
  MILLRACE_ASSIGN_OR_RETURN(const Greeting greeting, read_greeting(reply));
  server.epoch = greeting.epoch;
  server.mode = greeting.answer.mode;
  server.greeted = true;
  return Ok();
}

// Asynchronous servers continue from any snapshot. A synchronous one may lack at most the step
// whose gradients this trainer still has.
StatusOr<bool> Client::greet_again(Server& server, Deadline deadline) {
  if (must_settle_)
    return Status(StatusCode::kDistributed, "the trainer has to go back to an older step");
  const std::lock_guard lock(server.hello);
  MILLRACE_ASSIGN_OR_RETURN(const Greeting greeting, say_hello(server, deadline));
  if (greeting.epoch == server.epoch) return false;
  AfterRestart next = AfterRestart::kRepeat;
  if (server.mode == ServerMode::kSync)
    next = after_restart(greeting.answer, server.sent, !server.last_sent.empty());
  if (next == AfterRestart::kMustSettle) {
    must_settle_ = true;
    return Status(
        StatusCode::kDistributed,
        fmt::format("the server at {} restarted from step {}, this trainer is at step {}",
                    server.channel->endpoint(), greeting.answer.sent, server.sent.load()));
  }
  if (next == AfterRestart::kSendAgain)
    MILLRACE_RETURN_IF_ERROR(recover(server, greeting.epoch, deadline));
  server.epoch = greeting.epoch;
  return next == AfterRestart::kWasSent;
}

std::vector<Client::Server*> Client::all_servers() const {
  const std::lock_guard lock(mutex_);
  std::vector<Server*> servers;
  for (const auto& [endpoint, server] : servers_) servers.push_back(server.get());
  return servers;
}

std::vector<Client::Server*> Client::parameter_servers() const {
  const std::lock_guard lock(mutex_);
  std::vector<Server*> servers;
  for (const auto& [endpoint, server] : servers_)
    if (!heter_workers_.contains(endpoint)) servers.push_back(server.get());
  return servers;
}

std::vector<Client::Server*> Client::synchronous_servers() const {
  std::vector<Server*> servers = all_servers();
  std::erase_if(servers, [](const Server* server) {
    return !server->greeted || server->mode != ServerMode::kSync;
  });
  return servers;
}

StatusOr<int64_t> Client::settle() {
  const auto paused = pauses_.paused();
  const std::vector<Server*> servers = synchronous_servers();
  is_training_ = false;
  const bool again = must_settle_.exchange(false);
  int64_t ahead = kStepsAhead;
  auto pause = options_.retry_pause;
  const auto begin = SteadyClock::now();
  while (true) {
    const Deadline deadline = begin + options_.deadline + (pauses_.paused() - paused);
    StatusOr<int64_t> agreed = agree(servers, again, ahead, deadline);
    ahead *= 2;
    if (agreed.ok()) return agreed;
    // a server may still be restarting, and others may have to go back further
    if (agreed.status().code() != StatusCode::kDistributed)
      return Status(StatusCode::kDistributed, agreed.status().message());
    const bool ended =
        llvm::any_of(servers, [](const Server* server) { return server->channel->closed(); });
    if (ended || SteadyClock::now() + pause >= deadline) return agreed;
    std::this_thread::sleep_for(pause);
    pause = std::min(2 * pause, kClientLongestPause);
  }
}

StatusOr<int64_t> Client::agree(llvm::ArrayRef<Server*> servers, bool again, int64_t ahead,
                                Deadline deadline) {
  MILLRACE_ASSIGN_OR_RETURN(const std::vector<Greeting> greetings,
                            ask_for_steps(servers, deadline));
  if (greetings.empty()) return 0;
  std::vector<protocol::HelloAnswer> answers;
  for (const Greeting& greeting : greetings) answers.push_back(greeting.answer);
  const Settling plan = plan_settling(answers, again, ahead);
  if (plan.joins) MILLRACE_RETURN_IF_ERROR(check_none_lost_steps(servers, plan.newest, deadline));
  MILLRACE_RETURN_IF_ERROR(continue_at(servers, greetings, plan, deadline));
  return plan.step;
}

StatusOr<std::vector<Client::Greeting>> Client::ask_for_steps(llvm::ArrayRef<Server*> servers,
                                                              Deadline deadline) {
  std::vector<Greeting> greetings;
  for (Server* const server : servers) {
    const std::lock_guard lock(server->hello);
    MILLRACE_ASSIGN_OR_RETURN(greetings.emplace_back(), say_hello(*server, deadline));
  }
  return greetings;
}

Status Client::continue_at(llvm::ArrayRef<Server*> servers, llvm::ArrayRef<Greeting> greetings,
                           const Settling& plan, Deadline deadline) {
  const std::string reason = servers[plan.reason]->channel->endpoint();
  for (size_t i = 0; i < servers.size(); ++i) {
    Server& server = *servers[i];
    const std::lock_guard lock(server.hello);
    server.epoch = greetings[i].epoch;
    if (!plan.servers_agree) {
      Request request = protocol::pack(
          protocol::GoTo{plan.step, settled_number(server), reason, greetings[plan.reason].epoch});
      address(server, request);
      Reply reply;
      MILLRACE_RETURN_IF_ERROR(ask(server, request, deadline, reply));
      server.epoch = reply.epoch;
    }
    server.sent = server.fetched = plan.step;
    server.last_sent.clear();
    server.recovery = {};
  }
  return Ok();
}

// The answers are of different moments, between which the job may have made steps: all are asked
// again.
Status Client::check_none_lost_steps(llvm::ArrayRef<Server*> servers, int64_t newest,
                                     Deadline deadline) {
  MILLRACE_ASSIGN_OR_RETURN(const std::vector<Greeting> greetings,
                            ask_for_steps(servers, deadline));
  for (size_t i = 0; i < servers.size(); ++i) {
    const int64_t applied = greetings[i].answer.applied;
    if (!has_lost_steps(applied, newest)) continue;
    return {StatusCode::kDistributed,
            fmt::format("the server at {} is at step {}, another one at step {}: a trainer cannot "
                        "join before the others have gone back",
                        servers[i]->channel->endpoint(), applied, newest)};
  }
  return Ok();
}

// Calls to other servers may wait for gradients that the other trainers cannot send before this one
// has gone back, and this one settles only when all its calls have ended. So it sends the servers
// the step now: they begin another run, which ends those calls. Errors do not matter, because
// settle() does the same again.
void Client::go_back_early(Deadline deadline) {
  const std::vector<Server*> servers = synchronous_servers();
  if (servers.size() < 2) return;
  std::vector<Greeting> greetings;
  std::vector<protocol::HelloAnswer> answers;
  for (Server* const server : servers) {
    StatusOr<Greeting> greeting = say_hello(*server, deadline);
    if (!greeting.ok() || greeting->answer.standing == protocol::HelloAnswer::Standing::kJoins)
      return;
    answers.push_back(greeting->answer);
    greetings.push_back(*std::move(greeting));
  }
  const Settling plan = plan_settling(answers, /*again=*/true, kStepsAhead);
  for (size_t i = 0; i < servers.size(); ++i) {
    Request request = protocol::pack(protocol::GoTo{plan.step, settled_number(*servers[i]),
                                                    servers[plan.reason]->channel->endpoint(),
                                                    greetings[plan.reason].epoch});
    address(*servers[i], request);
    request.epoch = greetings[i].epoch;
    Reply reply;
    if (!ask(*servers[i], request, deadline, reply).ok()) return;
  }
}

// Brings a restarted server up to date: reports that this trainer has the parameters, and sends the
// gradients of the step again.
Status Client::recover(Server& server, uint64_t epoch, Deadline deadline) {
  Server::Recovery& recovery = server.recovery;
  if (recovery.epoch != epoch) {
    recovery.epoch = epoch;
    recovery.fetch_sequence = new_number(server);
    recovery.send_sequence = new_number(server);
  }
  Reply reply;
  Request fetched = protocol::pack(protocol::FetchBarrier{});
  fetched.sequence = recovery.fetch_sequence;
  Request sent = protocol::pack(protocol::SendBarrier{server.last_sent});
  sent.sequence = recovery.send_sequence;
  for (Request* const request : {&fetched, &sent}) {
    address(server, *request);
    request->epoch = epoch;
    MILLRACE_RETURN_IF_ERROR(ask(server, *request, deadline, reply));
  }
  const std::lock_guard lock(server.numbers);
  server.pending.erase(recovery.fetch_sequence);
  server.pending.erase(recovery.send_sequence);
  return Ok();
}

void Client::address(const Server& server, Request& request) const {
  request.caller = {options_.job, options_.trainer, options_.incarnation};
  request.step = step_;
  request.epoch = server.epoch;
  protocol::set_sent_everywhere(request, has_sent_everywhere());
}

bool Client::has_sent_everywhere() const {
  const std::lock_guard lock(mutex_);
  int64_t sent = -1;
  for (const auto& [endpoint, server] : servers_) {
    if (!server->greeted) return false;
    if (server->mode != ServerMode::kSync) continue;
    if (sent >= 0 && server->sent != sent) return false;
    sent = server->sent;
  }
  return true;
}

// Sends a request until it is answered; a repeat has the same sequence number.
Status Client::exchange(Server& server, Request& request, Deadline deadline, Reply& reply) {
  address(server, request);
  auto pause = options_.retry_pause;
  // a pause of this process says nothing about the server, so what passed meanwhile does not count
  const auto paused = pauses_.paused();
  const auto now = [&] { return SteadyClock::now() - (pauses_.paused() - paused); };
  const auto until = [&](Deadline limit) { return limit + (pauses_.paused() - paused); };
  // at the start of a job, servers may come up at any time before the deadline
  const Deadline patience =
      request.method == Method::kHello ? deadline : SteadyClock::now() + options_.reconnect_timeout;
  Status status;
  bool answered = false;  // the server itself returned the error
  const auto may_repeat = [&](int attempt) {
    if (attempt > 0 && server.channel->closed()) return false;
    return attempt <= options_.retries || (!answered && now() < patience);
  };
  for (int attempt = 0; may_repeat(attempt); ++attempt) {
    if (attempt > 0) {
      if (now() + pause >= deadline) break;
      std::this_thread::sleep_for(pause);
      pause = std::min(2 * pause, kClientLongestPause);
      if (request.method != Method::kHello) {
        const bool was_settling = must_settle_;
        const StatusOr<bool> greeted = greet_again(server, until(deadline));
        if (!greeted.ok()) {
          // a failure to reconnect does not change which repeats are allowed
          status = greeted.status();
          answered = false;
          if (must_settle_ && !was_settling) go_back_early(until(deadline));
          if (status.code() != StatusCode::kDistributed || must_settle_ || !may_repeat(attempt + 1))
            break;
          continue;
        }
        if (*greeted && request.method == Method::kSendBarrier) {
          status = Ok();  // the server carried it out before it went down
          break;
        }
        // a server may be restarted, or go back, several times in a row
        if (server.epoch != request.epoch && now() < patience) attempt = 0;
      }
    }
    if (request.method == Method::kHello) {
      request.epoch = make_epoch(server.term, 0);
    } else {
      request.epoch = server.epoch;
    }
    status = ask(server, request, until(deadline), reply);
    if (status.code() != StatusCode::kDistributed) break;
    answered = reply.epoch != 0;
  }
  // all servers know that the trainer has left, and one that is gone has ended for that reason
  if (has_completed_ && protocol::is_last_call(request) && !answered && !must_settle_ &&
      status.code() == StatusCode::kDistributed)
    return Ok();
  if (status.ok()) note(server, request);
  return status;
}

void Client::note(Server& server, const Request& request) {
  if (request.method == Method::kSendBarrier) {
    ++server.sent;
    server.last_sent = request.items;
  } else if (request.method == Method::kFetchBarrier) {
    ++server.fetched;
    server.last_sent.clear();
  }
}

Status Client::call(Call& call) {
  const Deadline deadline = SteadyClock::now() + options_.deadline;
  MILLRACE_ASSIGN_OR_RETURN(Server* const target, server(call.endpoint));
  Request& request = call.request;
  Status status = greet(*target, deadline);
  is_training_ = true;
  if (status.ok()) {
    request.sequence = protocol::needs_sequence(request) ? new_number(*target) : 0;
    reach_before(options_.kill_point, request.method);
    status = exchange(*target, request, deadline, call.reply);
    reach_after(options_.kill_point, request.method);
    const std::lock_guard lock(target->numbers);
    target->pending.erase(request.sequence);
  }
  if (status.ok()) return status;
  std::string what =
      fmt::format("in '{}' to the server at {}", method_name(request.method), call.endpoint);
  if (!request.items.empty()) {
    what += fmt::format(" for '{}'", request.items.front().name);
    if (request.items.size() > 1) what += fmt::format(" and {} more", request.items.size() - 1);
  }
  return std::move(status).with_note(what);
}

Status Client::call_all(llvm::MutableArrayRef<Call> calls) {
  // what failed first may be why others fail later
  Status first;
  std::mutex mutex;
  call_pool_.run(calls.size(), [&](size_t i) {
    Status status = call(calls[i]);
    const std::lock_guard lock(mutex);
    if (first.ok()) first = std::move(status);
  });
  return first;
}

StatusOr<ServerMode> Client::mode_of(const std::string& endpoint) {
  MILLRACE_ASSIGN_OR_RETURN(Server* const target, server(endpoint));
  MILLRACE_RETURN_IF_ERROR(greet(*target, SteadyClock::now() + options_.deadline));
  return target->mode.load();
}

std::vector<std::string> Client::endpoints() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> names;
  for (const auto& [endpoint, server] : servers_)
    if (!heter_workers_.contains(endpoint)) names.push_back(endpoint);
  return names;
}

Status Client::complete_all(const protocol::Complete& message) {
  std::vector<std::string> names = endpoints();
  names.insert(names.end(), heter_workers_.begin(), heter_workers_.end());
  std::vector<Call> calls;
  for (const std::string& endpoint : names) calls.emplace_back(endpoint, message);
  return call_all(calls);
}

// A server ends with the last call of the last trainer, and then answers no repeats. So that call
// only comes when every server has answered an earlier one.
Status Client::complete(bool stay) {
  Status completed;
  if (stay || !has_completed_) completed = complete_all({.stays = true, .waits = stay});
  has_completed_ |= completed.ok();
  if (stay || must_settle_) return completed;
  Status left = complete_all({});
  return completed.ok() ? left : completed;
}

}  // namespace millrace::ps
