#include <algorithm>
#include <array>
#include <condition_variable>
#include <exception>
#include <list>
#include <mutex>
#include <thread>
#include <utility>

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

#include "framework/base/errors.h"
#include "ps/metrics/metrics.h"
#include "ps/transport/grpc_engine.h"
#include "ps/transport/key_exchange.h"
#include "ps/transport/tcp_parts.h"

namespace millrace::ps {
namespace {

using Clock = std::chrono::steady_clock;

// Time for running calls to finish, and for replies to be sent, when a server ends.
constexpr std::chrono::milliseconds kTcpServerFinishGrace{500};
constexpr std::chrono::milliseconds kTcpServerDrain{2000};
constexpr uint64_t kLongestCallUs = 3600ULL * 1000 * 1000 * 1000;

// First bytes of HTTP/2 connections, and so of gRPC.
constexpr std::string_view kGrpcPreface = "PRI ";

enum class Stage { kIdle, kReceiving, kHandling, kReplying, kGone };

struct TcpServerConnection {
  Socket socket;
  Stage stage = Stage::kIdle;  // guarded by the listener's mutex
  std::thread thread;
};

// Refuses all calls by gRPC, which has no proof of the job's key.
class NoKeyHandler final : public Handler {
 public:
  Status handle(const Request& /*request*/, Deadline /*deadline*/, ReplySink& /*reply*/) override {
    return lacks_key();
  }
};

class TcpListener final : public Listener {
 public:
  TcpListener(std::shared_ptr<TcpShared> shared, Handler& handler)
      : shared_(std::move(shared)),
        handler_(handler),
        budget_(shared_->options.max_bytes_in_flight) {}
  ~TcpListener() override;

  [[nodiscard]] const std::string& endpoint() const override { return endpoint_; }
  Status start(const Endpoint& endpoint);

 private:
  void accept_all();
  void admit(Socket socket);
  void remove_gone();
  void serve(TcpServerConnection& connection);
  bool may_call(TcpServerConnection& connection, std::span<std::byte> buffer);
  bool serve_call(TcpServerConnection& connection, std::span<std::byte> buffer, bool first);
  Status handle(const CallReader& reader, ReplyWriter& reply);
  void hand_over(TcpServerConnection& connection);
  void count(const CallReader& reader, uint64_t sent, bool ok, Clock::time_point begin) const;
  // Records the stage of a connection. False if the server is about to end.
  bool note(TcpServerConnection& connection, Stage stage);
  bool any_in(std::initializer_list<Stage> stages) const;

  std::shared_ptr<TcpShared> shared_;
  Handler& handler_;
  MemoryBudget budget_;
  NoKeyHandler no_key_;
  std::unique_ptr<GrpcGuests> guests_;
  std::string endpoint_;
  Socket listener_;
  std::thread acceptor_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::list<TcpServerConnection> connections_;
  bool closing_ = false;
};

Status TcpListener::start(const Endpoint& endpoint) {
  if (shared_->guests == TcpGuests::kGrpc) {
    Handler& of_guests = shared_->options.job_key != nullptr ? no_key_ : handler_;
    MILLRACE_ASSIGN_OR_RETURN(guests_, make_grpc_guests(shared_->options, of_guests));
  }
  MILLRACE_ASSIGN_OR_RETURN(listener_, Socket::listen(endpoint));
  Endpoint got = endpoint;
  got.port = listener_.port();
  endpoint_ = to_string(got);
  acceptor_ = std::thread([this] { accept_all(); });
  return Ok();
}

void TcpListener::accept_all() {
  for (;;) {
    Socket socket(accept4(listener_.fd(), nullptr, nullptr, SOCK_CLOEXEC));
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (closing_) return;
    }
    remove_gone();
    // Too many files are open: wait until others are closed.
    if (!socket.is_open()) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    if (socket.is_open()) admit(std::move(socket));
  }
}

void TcpListener::admit(Socket socket) {
  socket.tune(shared_->options.keepalive_time, shared_->options.keepalive_timeout);
  std::unique_lock<std::mutex> lock(mutex_);
  if (connections_.size() >= static_cast<size_t>(shared_->options.max_handler_threads)) {
    lock.unlock();
    ReplyWriter answer(shared_->pool);
    socket.set_patience(std::chrono::milliseconds(100));
    static_cast<void>(socket.send(answer.finish(Status(
        StatusCode::kResource, fmt::format("the server already has the maximum of {} connections",
                                           shared_->options.max_handler_threads)))));
    return;
  }
  TcpServerConnection& connection = connections_.emplace_back();
  connection.socket = std::move(socket);
  connection.thread = std::thread([this, &connection] { serve(connection); });
}

void TcpListener::remove_gone() {
  std::list<TcpServerConnection> gone;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (auto at = connections_.begin(); at != connections_.end();) {
      const auto next = std::next(at);
      if (at->stage == Stage::kGone) gone.splice(gone.end(), connections_, at);
      at = next;
    }
  }
  for (TcpServerConnection& connection : gone) connection.thread.join();
}

bool TcpListener::note(TcpServerConnection& connection, Stage stage) {
  const std::lock_guard<std::mutex> lock(mutex_);
  connection.stage = stage;
  changed_.notify_all();
  return !closing_;
}

void TcpListener::serve(TcpServerConnection& connection) {
  std::array<std::byte, kReceiveBuffer> buffer;  // NOLINT: filled by recv
  bool first = true;
  if (may_call(connection, buffer)) {
    while (serve_call(connection, buffer, first)) first = false;
  }
  connection.socket.shut_down();
  note(connection, Stage::kGone);
}

// Before the first call: the caller proves that it has the key of the job, if there is one.
bool TcpListener::may_call(TcpServerConnection& connection, std::span<std::byte> buffer) {
  const GrpcOptions& options = shared_->options;
  if (options.job_key == nullptr) return true;
  Socket& socket = connection.socket;
  socket.set_deadline(Clock::now() + options.handshake_timeout);
  if (guests_ != nullptr && socket.starts_with(kGrpcPreface)) return true;  // refuses its calls
  const Status known = exchange_as_server(socket, *options.job_key);
  if (known.ok()) return true;
  ReplyWriter answer(shared_->pool);
  static_cast<void>(socket.send(answer.finish(known)));
  socket.finish(buffer);
  return false;
}

// Serves one call. False if the connection has ended.
bool TcpListener::serve_call(TcpServerConnection& connection, std::span<std::byte> buffer,
                             bool first) {
  const GrpcOptions& options = shared_->options;
  Socket& socket = connection.socket;
  if (!note(connection, Stage::kIdle)) return false;
  pollfd wait{socket.fd(), POLLIN, 0};
  const auto patience = first ? options.handshake_timeout : options.idle_timeout;
  if (poll(&wait, 1, static_cast<int>(patience.count())) <= 0) return false;
  if (!note(connection, Stage::kReceiving)) return false;
  const auto begin = Clock::now();
  if (first) {
    socket.set_patience(options.handshake_timeout);
    if (guests_ != nullptr && socket.starts_with(kGrpcPreface)) {
      hand_over(connection);
      return false;
    }
    socket.set_patience(options.stall_timeout);
  }
  CallReader reader(shared_->pool, options.max_message_bytes);
  reader.set_budget(budget_);
  ReplyWriter answer(shared_->pool);
  const StatusOr<bool> received = socket.receive(reader, buffer);
  if (received.ok() && !*received) return false;
  Status status = received.status();
  if (status.ok()) {
    if (!note(connection, Stage::kHandling)) return false;
    status = handle(reader, answer);
  }
  const OutgoingMessage message = answer.finish(status);
  count(reader, message.bytes(), status.ok(), begin);
  note(connection, Stage::kReplying);
  const bool sent = socket.send(message).ok();
  if (!received.ok()) socket.finish(buffer);
  return sent && received.ok();
}

// Passes a gRPC connection to the gRPC server, which needs a non-blocking socket.
void TcpListener::hand_over(TcpServerConnection& connection) {
  Socket guest;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    guest = std::move(connection.socket);
  }
  guest.set_patience(std::chrono::milliseconds(0));
  const int fd = guest.release();
  fcntl(fd, F_SETFL, fcntl(fd, F_GETFL, 0) | O_NONBLOCK);
  guests_->take(fd);
}

Status TcpListener::handle(const CallReader& reader, ReplyWriter& reply) {
  const auto wait = std::chrono::microseconds(std::min(reader.timeout_us(), kLongestCallUs));
  try {
    return handler_.handle(reader.request(), Clock::now() + wait, reply);
  } catch (const std::exception& error) {
    return Internal("unexpected exception in '{}': {}", method_name(reader.request().method),
                    error.what());
  }
}

void TcpListener::count(const CallReader& reader, uint64_t sent, bool ok,
                        Clock::time_point begin) const {
  if (shared_->options.metrics == nullptr) return;
  const std::string_view method =
      reader.has_head() ? method_name(reader.request().method) : "unreadable";
  count_call(*shared_->options.metrics, method,
             {reader.received_bytes(), sent, ok,
              std::chrono::duration<double>(Clock::now() - begin).count()});
}

bool TcpListener::any_in(std::initializer_list<Stage> stages) const {
  return std::any_of(
      connections_.begin(), connections_.end(), [&](const TcpServerConnection& connection) {
        return std::find(stages.begin(), stages.end(), connection.stage) != stages.end();
      });
}

TcpListener::~TcpListener() {
  if (!listener_.is_open()) return;
  {
    std::unique_lock<std::mutex> lock(mutex_);
    closing_ = true;
    listener_.shut_down();
    changed_.wait_for(lock, kTcpServerFinishGrace, [this] {
      return !any_in({Stage::kReceiving, Stage::kHandling, Stage::kReplying});
    });
    for (TcpServerConnection& connection : connections_)
      if (connection.stage != Stage::kReplying) connection.socket.shut_down();
    changed_.wait_for(lock, kTcpServerDrain, [this] { return !any_in({Stage::kReplying}); });
    for (TcpServerConnection& connection : connections_) connection.socket.shut_down();
  }
  acceptor_.join();
  // No thread adds to the list any more.
  for (TcpServerConnection& connection : connections_) connection.thread.join();
}

}  // namespace

StatusOr<std::unique_ptr<Listener>> make_tcp_listener(std::shared_ptr<TcpShared> shared,
                                                      const Endpoint& endpoint, Handler& handler) {
  auto listener = std::make_unique<TcpListener>(std::move(shared), handler);
  MILLRACE_RETURN_IF_ERROR(listener->start(endpoint));
  return std::unique_ptr<Listener>(std::move(listener));
}

}  // namespace millrace::ps
