#include "ps/discovery/discovering_transport.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include <fmt/format.h>
#include <llvm/ADT/ScopeExit.h>

#include "framework/base/errors.h"
#include "ps/transport/endpoint.h"
#include "ps/transport/socket.h"

namespace millrace::ps {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kDiscoveringTransportPause{200};
// An entry may outlive its server by the length of a lease. A server that is up responds faster
// than this.
constexpr std::chrono::milliseconds kProbe{1000};
// How long the directory may take to say where a server is that was found before.
constexpr std::chrono::milliseconds kDirectory{1000};
// How often a server is reminded of callers whose calls wait for the directory.
constexpr std::chrono::milliseconds kReminder{500};

Status connect_once(const std::string& address, Deadline deadline) {
  MILLRACE_ASSIGN_OR_RETURN(const Endpoint parsed, parse_endpoint(address));
  return Socket::connect(parsed, deadline).status();
}

class DiscoveringChannel final : public Channel {
 public:
  DiscoveringChannel(std::string name, std::shared_ptr<Transport> transport,
                     std::shared_ptr<Directory> directory, const DiscoveryOptions& options)
      : name_(std::move(name)),
        transport_(std::move(transport)),
        directory_(std::move(directory)),
        patience_(options.patience),
        probe_(options.probe ? options.probe : connect_once) {}

  [[nodiscard]] const std::string& endpoint() const override { return name_; }

  Status call(const Request& request, Deadline deadline, Reply& reply) override {
    MILLRACE_ASSIGN_OR_RETURN(const std::shared_ptr<Channel> channel, find(deadline));
    Status status = channel->call(request, deadline, reply);
    if (status.code() != StatusCode::kDistributed) return status;
    const std::lock_guard<std::mutex> lock(mutex_);
    if (channel_ == channel) channel_.reset();
    return std::move(status).with_note(fmt::format("'{}' was at {}", name_, channel->endpoint()));
  }

 private:
  // The channel to the server's current address. One thread looks it up; others wait for the
  // result, none beyond its own deadline.
  StatusOr<std::shared_ptr<Channel>> find(Deadline deadline) {
    std::unique_lock<std::mutex> lock(mutex_);
    if (!searched_.wait_until(lock, deadline, [this] { return !is_searching_; }))
      return Status(StatusCode::kDistributed,
                    fmt::format("the address of '{}' was not found in time", name_));
    if (channel_ != nullptr) return channel_;
    is_searching_ = true;
    const auto ended = llvm::make_scope_exit([&] {
      if (!lock.owns_lock()) lock.lock();
      is_searching_ = false;
      searched_.notify_all();
    });
    lock.unlock();
    StatusOr<std::shared_ptr<Channel>> found = search(deadline);
    lock.lock();
    if (found.ok()) channel_ = *found;
    return found;
  }

  // A server keeps its address while the directory does not respond; one that has lost its name
  // since refuses calls.
  StatusOr<std::optional<std::string>> look_up(Deadline deadline) {
    if (last_address_.empty()) return directory_->find(name_, deadline);
    const auto now = Clock::now();
    const auto half = std::min<Clock::duration>(kDirectory, (deadline - now) / 2);
    StatusOr<std::optional<std::string>> address = directory_->find(name_, now + half);
    if (address.status().code() == StatusCode::kDistributed) return std::optional(last_address_);
    return address;
  }

  StatusOr<std::shared_ptr<Channel>> search(Deadline deadline) {
    const auto begin = Clock::now();
    if (!last_address_.empty()) deadline = std::min(deadline, begin + patience_);
    for (;;) {
      Status absent;
      MILLRACE_ASSIGN_OR_RETURN(const std::optional<std::string> address, look_up(deadline));
      if (!address) {
        absent = Status(StatusCode::kDistributed,
                        fmt::format("no server has announced itself as '{}'", name_));
      } else if (absent = probe(*address, deadline); absent.ok()) {
        MILLRACE_ASSIGN_OR_RETURN(std::shared_ptr<Channel> channel, transport_->connect(*address));
        // calls to a process that was paused and replaced would wait until it runs again
        const auto before = last_channel_.lock();
        if (before != nullptr && last_address_ != *address) before->interrupt();
        last_address_ = *address;
        last_channel_ = channel;
        return channel;
      }
      if (Clock::now() + kDiscoveringTransportPause >= deadline) {
        const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
        return std::move(absent).with_note(fmt::format("searched for {:.1f} s", seconds));
      }
      std::this_thread::sleep_for(kDiscoveringTransportPause);
    }
  }

  Status probe(const std::string& address, Deadline deadline) const {
    const Status reached = probe_(address, std::min(deadline, Clock::now() + kProbe));
    if (reached.ok()) return Ok();
    return Status(StatusCode::kDistributed,
                  fmt::format("'{}' was announced at {}, which does not answer", name_, address))
        .with_note(reached.message());
  }

  const std::string name_;
  std::shared_ptr<Transport> transport_;
  std::shared_ptr<Directory> directory_;
  std::chrono::milliseconds patience_;
  std::function<Status(const std::string&, Deadline)> probe_;
  std::mutex mutex_;
  std::condition_variable searched_;
  bool is_searching_ = false;
  std::shared_ptr<Channel> channel_;
  // Where it was found last. Only the thread that searches uses these.
  std::string last_address_;
  std::weak_ptr<Channel> last_channel_;
};

// The address to announce for a server that listens at `endpoint`.
StatusOr<std::string> address_of(const std::string& endpoint, const std::string& advertise) {
  MILLRACE_ASSIGN_OR_RETURN(Endpoint own, parse_endpoint(endpoint));
  if (!advertise.empty()) {
    if (advertise.find(':') != std::string::npos) return advertise;
    own.host = advertise;
    return to_string(own);
  }
  if (own.host == "0.0.0.0" || own.host == "::") {
    return Status(StatusCode::kUsage,
                  fmt::format("a server that listens at {} needs an address to announce to others",
                              endpoint))
        .with_hint("--advertise HOST");
  }
  return to_string(own);
}

// Passes calls to the handler of a server as long as this process has the server's name. A process
// that was paused may have lost it to another one, and must not answer any more.
class FencedHandler final : public Handler {
 public:
  FencedHandler(Handler& handler, std::shared_ptr<Directory> directory, std::string name)
      : handler_(handler), directory_(std::move(directory)), name_(std::move(name)) {}

  Status handle(const Request& request, Deadline deadline, ReplySink& reply) override {
    if (!is_open_)
      return {StatusCode::kDistributed,
              fmt::format("the server '{}' has not announced itself yet", name_)};
    MILLRACE_RETURN_IF_ERROR(check(request, deadline));
    Status status = handler_.handle(request, deadline, reply);
    // what was done is undone by no error, but the caller must not build on it
    MILLRACE_RETURN_IF_ERROR(check(request, deadline));
    return status;
  }
  [[nodiscard]] StatusOr<bool> knows(const Request& envelope) const override {
    return handler_.knows(envelope);
  }
  void heard(const Request& envelope) override { handler_.heard(envelope); }
  /// Lets calls pass from now on, and ends the server when its name is lost.
  void open() {
    directory_->watch(name_, [this] { (void)end_server(); });
    is_open_ = true;
  }
  void close() {
    directory_->watch(name_, {});
    if (handler_.has_finished()) directory_->finish(name_);
  }

 private:
  Status check(const Request& request, Deadline deadline) {
    StatusOr<bool> has_name =
        directory_->still_has(name_, std::min(deadline, Clock::now() + kReminder));
    while (!has_name.ok() && Clock::now() < deadline) {
      handler_.heard(request);
      has_name = directory_->still_has(name_, std::min(deadline, Clock::now() + kReminder));
    }
    if (!has_name.ok()) return has_name.status();
    return *has_name ? Ok() : end_server();
  }

  Status end_server() {
    Status lost(StatusCode::kDistributed,
                fmt::format("another process serves as '{}', according to the directory; this one, "
                            "with term {}, was paused or cut off",
                            name_, handler_.term()));
    handler_.end(lost);
    return lost;
  }

  Handler& handler_;
  std::shared_ptr<Directory> directory_;
  std::string name_;
  std::atomic<bool> is_open_{false};
};

class FencedListener final : public Listener {
 public:
  explicit FencedListener(std::unique_ptr<FencedHandler> handler) : handler_(std::move(handler)) {}
  ~FencedListener() override { handler_->close(); }
  [[nodiscard]] const std::string& endpoint() const override { return listener->endpoint(); }

  std::unique_ptr<FencedHandler> handler_;
  std::unique_ptr<Listener> listener;  ///< destroyed before the handler
};

class DiscoveringTransport final : public Transport {
 public:
  DiscoveringTransport(std::shared_ptr<Transport> transport, std::shared_ptr<Directory> directory,
                       DiscoveryOptions options)
      : transport_(std::move(transport)),
        directory_(std::move(directory)),
        options_(std::move(options)) {}

  StatusOr<std::shared_ptr<Channel>> connect(const std::string& endpoint) override {
    MILLRACE_RETURN_IF_ERROR(parse_endpoint(endpoint).status());
    return std::shared_ptr<Channel>(
        std::make_shared<DiscoveringChannel>(endpoint, transport_, directory_, options_));
  }

  StatusOr<std::unique_ptr<Listener>> listen(const std::string& endpoint,
                                             Handler& handler) override {
    const ServingPlace& place = options_.place;
    auto made = std::make_unique<FencedListener>(
        std::make_unique<FencedHandler>(handler, directory_, endpoint));
    MILLRACE_ASSIGN_OR_RETURN(
        made->listener,
        transport_->listen(place.listen_at.empty() ? endpoint : place.listen_at, *made->handler_));
    MILLRACE_ASSIGN_OR_RETURN(const std::string address,
                              address_of(made->endpoint(), place.advertise));
    const uint64_t own = handler.term();
    MILLRACE_ASSIGN_OR_RETURN(
        const uint64_t term,
        directory_->announce(endpoint, address, own, Clock::now() + options_.patience));
    if (term > own) MILLRACE_RETURN_IF_ERROR(handler.begin_term(term));
    made->handler_->open();
    return std::unique_ptr<Listener>(std::move(made));
  }

 private:
  std::shared_ptr<Transport> transport_;
  std::shared_ptr<Directory> directory_;
  DiscoveryOptions options_;
};

}  // namespace

std::shared_ptr<Transport> make_discovering_transport(std::shared_ptr<Transport> transport,
                                                      std::shared_ptr<Directory> directory,
                                                      const DiscoveryOptions& options) {
  return std::make_shared<DiscoveringTransport>(std::move(transport), std::move(directory),
                                                options);
}

}  // namespace millrace::ps
