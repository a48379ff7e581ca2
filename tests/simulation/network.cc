#include "tests/simulation/network.h"

#include <algorithm>
#include <span>

#include <fmt/format.h>

#include "ps/transport/codec.h"

namespace millrace::simulation {
namespace {

using ps::Deadline;
using ps::Reply;
using ps::Request;
using ProcessId = Scheduler::ProcessId;

// As the TCP transport has them.
constexpr Time kErrorGrace = 300 * kMillisecond;
constexpr Time kFirstPause = 20 * kMillisecond;
constexpr Time kLongestPause = 500 * kMillisecond;

Deadline deadline_at(Time time, Time now) {
  return std::chrono::steady_clock::now() + std::chrono::nanoseconds(time - now);
}

std::string flat(const ps::OutgoingMessage& message) {
  std::string bytes = message.head;
  for (const std::span<const std::byte> part : message.payload)
    bytes.append(reinterpret_cast<const char*>(part.data()), part.size());
  return bytes;
}

std::span<const std::byte> bytes_of(const std::string& text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

}  // namespace

/// Where a server listens.
struct Network::Place {
  ProcessId process = 0;
  ps::Handler* handler = nullptr;
  int calls = 0;  ///< in the handler
  bool closed = false;
};

/// A call in progress. Its memory is shared by caller and server, each of which may end first.
struct Network::Exchange {
  std::shared_ptr<Place> place;
  ProcessId caller = 0;
  std::string request;
  Time sent_at = 0;
  Time deadline = 0;
  bool cut_before = false;  ///< the request does not arrive
  bool cut_after = false;   ///< the response does not arrive
  Time done_at = kNever;    ///< when the caller notices the end
  bool answered = false;
  std::string reply;
  const void* channel = nullptr;  ///< of the caller
};

Network::Network(Scheduler& scheduler, uint64_t seed, Noise noise)
    : scheduler_(scheduler), random_(seed), noise_(noise) {}

Network::~Network() = default;

Time Network::time_of(Deadline deadline, Time now) {
  const auto left = deadline - std::chrono::steady_clock::now();
  if (left > std::chrono::hours(1000)) return now + Time{3'600'000} * kSecond;
  return now + std::chrono::duration_cast<std::chrono::nanoseconds>(left).count();
}

Time Network::delay() {
  if (random_.chance(noise_.slow)) return random_.between(noise_.shortest, noise_.slowest);
  return random_.between(noise_.shortest, noise_.longest);
}

Time Network::blocked_until(ProcessId from, ProcessId to) const {
  const auto found = blocked_.find({from, to});
  return found == blocked_.end() ? 0 : found->second;
}

Time Network::arrival(ProcessId from, ProcessId to) {
  const Time blocked = blocked_until(from, to);
  const Time now = scheduler_.now();
  // TCP sends again after growing pauses
  const Time repeated = blocked > now ? blocked + random_.between(0, kSecond) : now;
  return repeated + delay();
}

void Network::block(ProcessId from, ProcessId to, Time until) {
  Time& at = blocked_[{from, to}];
  at = std::max(at, until);
}

bool Network::listens(const std::string& endpoint) const {
  return places_.contains(endpoint);
}

void Network::lose(Exchange& exchange) {
  if (exchange.answered || exchange.done_at != kNever) return;
  exchange.done_at = arrival(exchange.place->process, exchange.caller);
  scheduler_.wake_all(&exchange);
}

void Network::cut(ProcessId process) {
  for (const auto& weak : exchanges_) {
    const std::shared_ptr<Exchange> exchange = weak.lock();
    if (exchange == nullptr) continue;
    if (exchange->caller != process && exchange->place->process != process) continue;
    exchange->cut_after = true;
    lose(*exchange);
  }
}

void Network::close(Place& place) {
  place.closed = true;
  std::erase_if(places_, [&](const auto& entry) { return entry.second.get() == &place; });
}

void Network::end(ProcessId process) {
  std::vector<std::shared_ptr<Place>> own;
  for (const auto& [endpoint, place] : places_)
    if (place->process == process) own.push_back(place);
  for (const auto& place : own) close(*place);
  cut(process);
}

// Runs in a thread of the server's process, so a paused server does not respond and a killed one
// never does, while what a killed caller has sent still arrives.
void Network::deliver(const std::shared_ptr<Exchange>& exchange) {
  scheduler_.sleep_until(arrival(exchange->caller, exchange->place->process));
  Place& place = *exchange->place;
  if (place.closed || exchange->cut_before) return lose(*exchange);
  if (exchange->done_at != kNever && random_.chance(0.5)) return;
  ps::BufferPool pool;
  ps::CallReader reader(pool);
  ps::ReplyWriter writer(pool);
  Status status = reader.feed(bytes_of(exchange->request));
  const Time now = scheduler_.now();
  const Time paused = scheduler_.paused_for(place.process);
  ++place.calls;
  if (status.ok()) {
    const Time left = exchange->deadline - exchange->sent_at;
    status = place.handler->handle(reader.request(), deadline_at(now + left, now), writer);
  }
  --place.calls;
  scheduler_.wake_all(&place);
  exchange->reply = flat(writer.finish(status));
  const Request& request = reader.request();
  if (watcher_) watcher_({place.process, request, now, paused, status});
  scheduler_.note(fmt::format("{} {} of {} step {} number {}: {}",
                              scheduler_.name_of(place.process), method_name(request.method),
                              scheduler_.name_of(exchange->caller), request.step, request.sequence,
                              status.ok() ? "ok" : "error"));
  if (!status.ok()) scheduler_.remark("  " + status.message());
  if (exchange->cut_after) return lose(*exchange);
  if (exchange->done_at != kNever) return;
  exchange->answered = true;
  exchange->done_at = arrival(place.process, exchange->caller);
  scheduler_.wake_all(exchange.get());
}

class Network::SimulatedChannel final : public ps::Channel {
 public:
  SimulatedChannel(Network& network, ProcessId process, std::string endpoint, Time reconnect,
                   bool short_first)
      : network_(network),
        process_(process),
        endpoint_(std::move(endpoint)),
        reconnect_(reconnect),
        short_first_(short_first) {}

  [[nodiscard]] const std::string& endpoint() const override { return endpoint_; }

  Status call(const Request& request, Deadline deadline, Reply& reply) override {
    Scheduler& scheduler = network_.scheduler_;
    const Time until = time_of(deadline, scheduler.now());
    MILLRACE_ASSIGN_OR_RETURN(std::shared_ptr<Place> place, connect(until));
    auto exchange = std::make_shared<Exchange>();
    exchange->place = std::move(place);
    exchange->caller = process_;
    exchange->sent_at = scheduler.now();
    exchange->deadline = until;
    const Time left = std::max<Time>(0, until - scheduler.now());
    ps::OutgoingMessage message;
    MILLRACE_RETURN_IF_ERROR(
        encode_request(request, static_cast<uint64_t>(left / kMicrosecond), message));
    exchange->request = flat(message);
    if (network_.random_.chance(network_.noise_.cut))
      (network_.random_.chance(0.4) ? exchange->cut_before : exchange->cut_after) = true;
    std::erase_if(network_.exchanges_, [](const auto& weak) { return weak.expired(); });
    network_.exchanges_.push_back(exchange);
    scheduler.spawn(exchange->place->process,
                    [network = &network_, exchange] { network->deliver(exchange); });
    exchange->channel = this;
    return await(*exchange, request, reply);
  }
  void interrupt() override {
    for (const auto& weak : network_.exchanges_) {
      const std::shared_ptr<Exchange> exchange = weak.lock();
      if (exchange == nullptr || exchange->channel != this || exchange->answered) continue;
      exchange->done_at = std::min(exchange->done_at, network_.scheduler_.now());
      network_.scheduler_.wake_all(exchange.get());
    }
  }

 private:
  // An open connection stays as long as the server's process listens.
  StatusOr<std::shared_ptr<Place>> connect(Time until) {
    Scheduler& scheduler = network_.scheduler_;
    const Time begin = scheduler.now();
    if (last_ != nullptr || short_first_) until = std::min(until, begin + reconnect_);
    for (Time pause = kFirstPause;; pause = std::min(2 * pause, kLongestPause)) {
      const auto found = network_.places_.find(endpoint_);
      if (found != network_.places_.end()) {
        const ProcessId server = found->second->process;
        const bool open = found->second == last_;
        const Time blocked = std::max(network_.blocked_until(process_, server),
                                      network_.blocked_until(server, process_));
        if (open || blocked <= scheduler.now()) return last_ = found->second;
      }
      if (scheduler.now() + pause >= until) {
        scheduler.sleep_until(until);
        return Status(StatusCode::kDistributed, fmt::format("no connection to {}", endpoint_));
      }
      scheduler.sleep_until(scheduler.now() + pause);
    }
  }

  Status await(Exchange& exchange, const Request& request, Reply& reply) {
    Scheduler& scheduler = network_.scheduler_;
    const Time give_up = exchange.deadline + kErrorGrace;
    while (scheduler.now() < std::min(exchange.done_at, give_up))
      scheduler.block(&exchange, std::min(exchange.done_at, give_up));
    if (scheduler.now() < exchange.done_at) {
      exchange.done_at = scheduler.now();
      return {StatusCode::kDistributed,
              fmt::format("{} got no answer from {}", method_name(request.method), endpoint_)};
    }
    if (!exchange.answered)
      return {StatusCode::kDistributed,
              fmt::format("{} lost the connection to {}", method_name(request.method), endpoint_)};
    ps::BufferPool pool;
    ps::ReplyReader reader(pool, reply);
    MILLRACE_RETURN_IF_ERROR(reader.feed(bytes_of(exchange.reply)));
    if (reader.status().ok()) return Ok();
    return Status(reader.status()).with_note("from pserver " + endpoint_);
  }

  Network& network_;
  ProcessId process_;
  std::string endpoint_;
  Time reconnect_;
  bool short_first_;
  std::shared_ptr<Place> last_;
};

class Network::SimulatedListener final : public ps::Listener {
 public:
  SimulatedListener(Network& network, std::string endpoint, std::shared_ptr<Place> place)
      : network_(network), endpoint_(std::move(endpoint)), place_(std::move(place)) {}
  ~SimulatedListener() override {
    network_.close(*place_);
    while (place_->calls > 0) network_.scheduler_.block(place_.get(), kNever);
  }
  [[nodiscard]] const std::string& endpoint() const override { return endpoint_; }

 private:
  Network& network_;
  std::string endpoint_;
  std::shared_ptr<Place> place_;
};

class Network::SimulatedTransport final : public ps::Transport {
 public:
  SimulatedTransport(Network& network, ProcessId process, Time reconnect, bool short_first)
      : network_(network), process_(process), reconnect_(reconnect), short_first_(short_first) {}

  StatusOr<std::shared_ptr<ps::Channel>> connect(const std::string& endpoint) override {
    return std::shared_ptr<ps::Channel>(
        std::make_shared<SimulatedChannel>(network_, process_, endpoint, reconnect_, short_first_));
  }
  StatusOr<std::unique_ptr<ps::Listener>> listen(const std::string& endpoint,
                                                 ps::Handler& handler) override {
    auto place = std::make_shared<Place>();
    place->process = process_;
    place->handler = &handler;
    if (!network_.places_.emplace(endpoint, place).second)
      return Status(StatusCode::kDistributed,
                    fmt::format("another server listens at {}", endpoint));
    return std::unique_ptr<ps::Listener>(
        std::make_unique<SimulatedListener>(network_, endpoint, std::move(place)));
  }

 private:
  Network& network_;
  ProcessId process_;
  Time reconnect_;
  bool short_first_;
};

std::shared_ptr<ps::Transport> Network::transport(ProcessId process, Time reconnect,
                                                  bool short_first) {
  return std::make_shared<SimulatedTransport>(*this, process, reconnect, short_first);
}

Status Network::probe(ProcessId process, const std::string& endpoint, Deadline deadline) {
  const Time until = time_of(deadline, scheduler_.now());
  const auto found = places_.find(endpoint);
  const Time there = found == places_.end() ? scheduler_.now() + delay()
                                            : arrival(process, found->second->process);
  scheduler_.sleep_until(std::min(there, until));
  if (there > until || !places_.contains(endpoint))
    return {StatusCode::kDistributed, fmt::format("no connection to {}", endpoint)};
  const Time back = arrival(places_.at(endpoint)->process, process);
  scheduler_.sleep_until(std::min(back, until));
  if (back <= until) return Ok();
  return {StatusCode::kDistributed, fmt::format("no connection to {} in time", endpoint)};
}

}  // namespace millrace::simulation
