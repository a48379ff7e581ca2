#include "ps/client/client.h"

#include <random>
#include <thread>
#include <utility>

#include <fmt/format.h>
#include <llvm/ADT/StringRef.h>

#include "ps/wire_names.h"

namespace millrace::ps {
namespace {

using SteadyClock = std::chrono::steady_clock;

// Calls that change something get a number, under which a repeat is known.
bool has_sequence(Method method, const std::string& text) {
  switch (method) {
    case Method::kSend:
    case Method::kSendBarrier:
    case Method::kFetchBarrier:
    case Method::kCount:
    case Method::kPush:
    case Method::kRun:
    case Method::kTableBarrier:
      return true;
    case Method::kGet:
    case Method::kPull:
      return !text.empty();
    default:
      return false;
  }
}

uint64_t new_incarnation() {
  std::random_device device;
  return (uint64_t{device()} << 32U | device()) | 1U;
}

}  // namespace

Client::Client(std::shared_ptr<Transport> transport, ClientOptions options)
    : transport_(std::move(transport)), options_(std::move(options)) {
  if (options_.incarnation == 0) options_.incarnation = new_incarnation();
  if (options_.heartbeat.count() > 0) heart_ = std::thread([this] { beat(); });
}

Client::~Client() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  if (heart_.joinable()) heart_.join();
}

StatusOr<Client::Server*> Client::server(const std::string& endpoint) {
  const std::lock_guard lock(mutex_);
  std::unique_ptr<Server>& server = servers_[endpoint];
  if (server == nullptr) {
    auto made = std::make_unique<Server>();
    MILLRACE_ASSIGN_OR_RETURN(made->channel, transport_->connect(endpoint));
    server = std::move(made);
  }
  return server.get();
}

Request Client::hello_of(const Server& server) const {
  Request request;
  request.method = Method::kHello;
  request.caller = {options_.job, options_.trainer, options_.incarnation};
  request.step = step_;
  request.number = server.fetched > server.sent ? kHasFetched : 0;
  request.text = std::to_string(server.sent);
  return request;
}

Status Client::greet(Server& server, Deadline deadline) {
  const std::lock_guard lock(server.hello);
  if (server.greeted) return Ok();
  Reply reply;
  MILLRACE_RETURN_IF_ERROR(exchange(server, hello_of(server), deadline, reply));
  server.epoch = reply.epoch;
  server.mode = static_cast<int>(reply.number);
  server.greeted = true;
  return Ok();
}

// Asynchronous servers go on from any snapshot; a synchronous one must lack at most the step whose
// gradients are still here.
StatusOr<bool> Client::greet_again(Server& server, Deadline deadline) {
  const std::lock_guard lock(server.hello);
  Reply reply;
  MILLRACE_RETURN_IF_ERROR(server.channel->call(hello_of(server), deadline, reply));
  if (reply.epoch == server.epoch) return false;
  int64_t sent = -1;
  if (server.mode == 0 &&
      (llvm::StringRef(reply.text).getAsInteger(10, sent) || sent < server.sent - 1 ||
       sent > server.sent + 1 || (sent == server.sent - 1 && server.last_sent.empty()))) {
    return Status(
        StatusCode::kDistributed,
        fmt::format("the server at {} came back with step {}, this trainer is at step {}: all "
                    "have to go on from that snapshot",
                    server.channel->endpoint(), sent, server.sent.load()));
  }
  if (server.mode == 0 && sent < server.sent)
    MILLRACE_RETURN_IF_ERROR(recover(server, reply.epoch, deadline));
  server.epoch = reply.epoch;
  return server.mode == 0 && sent > server.sent;
}

// Tells the server what it forgot: that the parameters are here, and the gradients of the step.
Status Client::recover(Server& server, uint64_t epoch, Deadline deadline) {
  Server::Recovery& recovery = server.recovery;
  if (recovery.epoch != epoch) {
    recovery.epoch = epoch;
    recovery.fetch_sequence = ++server.sequence;
    recovery.send_sequence = ++server.sequence;
  }
  Reply reply;
  Request request = hello_of(server);
  request.epoch = epoch;
  request.number = 0;
  request.text.clear();
  request.method = Method::kFetchBarrier;
  request.sequence = recovery.fetch_sequence;
  MILLRACE_RETURN_IF_ERROR(server.channel->call(request, deadline, reply));
  request.method = Method::kSendBarrier;
  request.sequence = recovery.send_sequence;
  request.items = server.last_sent;
  return server.channel->call(request, deadline, reply);
}

// Sends a request until it is answered; a repeat has the same sequence number.
Status Client::exchange(Server& server, const Request& original, Deadline deadline, Reply& reply) {
  Request request = original;
  request.caller = {options_.job, options_.trainer, options_.incarnation};
  request.step = step_;
  auto pause = options_.retry_pause;
  Status status;
  for (int attempt = 0; attempt <= options_.retries; ++attempt) {
    if (attempt > 0) {
      if (SteadyClock::now() + pause >= deadline) break;
      std::this_thread::sleep_for(pause);
      pause *= 2;
      if (request.method != Method::kHello) {
        const StatusOr<bool> greeted = greet_again(server, deadline);
        if (!greeted.ok()) {
          // who it is now does not change what went wrong first
          status = greeted.status();
          if (status.code() != StatusCode::kDistributed || attempt == options_.retries)
            return status;
          continue;
        }
        if (*greeted && request.method == Method::kSendBarrier) {
          status = Ok();  // carried out before the server went down
          break;
        }
      }
    }
    request.epoch = server.epoch;
    status = server.channel->call(request, deadline, reply);
    if (status.code() != StatusCode::kDistributed) break;
  }
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
  Request request;
  request.method = call.method;
  request.number = call.number;
  request.text = call.text;
  request.items = call.items;
  Status status = greet(*target, deadline);
  if (status.ok()) {
    if (has_sequence(call.method, call.text)) request.sequence = ++target->sequence;
    status = exchange(*target, request, deadline, call.reply);
  }
  if (status.ok()) return status;
  std::string what =
      fmt::format("in '{}' to the server at {}", method_name(call.method), call.endpoint);
  if (!call.items.empty()) {
    what += fmt::format(" for '{}'", call.items.front().name);
    if (call.items.size() > 1) what += fmt::format(" and {} more", call.items.size() - 1);
  }
  return std::move(status).with_note(what);
}

Status Client::call_all(llvm::MutableArrayRef<Call> calls) {
  std::vector<Status> results(calls.size());
  crew_.run(calls.size(), [&](size_t i) { results[i] = call(calls[i]); });
  for (Status& status : results) MILLRACE_RETURN_IF_ERROR(std::move(status));
  return Ok();
}

StatusOr<int> Client::mode_of(const std::string& endpoint) {
  MILLRACE_ASSIGN_OR_RETURN(Server* const target, server(endpoint));
  MILLRACE_RETURN_IF_ERROR(greet(*target, SteadyClock::now() + options_.deadline));
  return target->mode.load();
}

std::vector<std::string> Client::endpoints() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> names;
  for (const auto& [endpoint, server] : servers_) names.push_back(endpoint);
  return names;
}

Status Client::complete(bool stay) {
  std::vector<Call> calls;
  for (const std::string& endpoint : endpoints()) {
    Call& call = calls.emplace_back();
    call.endpoint = endpoint;
    call.method = Method::kComplete;
    call.number = stay ? 1 : 0;
  }
  return call_all(calls);
}

// Keeps quiet steps from looking like a lost trainer. What goes wrong here, the next call finds.
void Client::beat() {
  std::unique_lock lock(mutex_);
  while (!wake_.wait_for(lock, options_.heartbeat, [this] { return stop_; })) {
    std::vector<Server*> servers;
    for (const auto& [endpoint, server] : servers_) servers.push_back(server.get());
    lock.unlock();
    // side by side, so that one that is gone does not keep the others from hearing
    crew_.run(servers.size(), [&](size_t i) {
      Server& each = *servers[i];
      const std::unique_lock hello(each.hello, std::try_to_lock);
      if (!hello.owns_lock() || !each.greeted) return;
      Request request = hello_of(each);
      request.epoch = each.epoch;
      Reply reply;
      (void)each.channel->call(request, SteadyClock::now() + options_.heartbeat, reply);
    });
    lock.lock();
  }
}

}  // namespace millrace::ps
