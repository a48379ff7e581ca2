#include <algorithm>
#include <array>
#include <exception>
#include <mutex>
#include <new>
#include <thread>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "framework/base/errors.h"
#include "ps/metrics/metrics.h"
#include "ps/transport/admission.h"
#include "ps/transport/grpc_engine.h"
#include "ps/transport/key_exchange.h"
#include "ps/transport/tcp_connections.h"
#include "ps/transport/tcp_parts.h"

namespace millrace::ps {
namespace {

using Clock = std::chrono::steady_clock;
using Stage = TcpConnection::Stage;

// Time for running calls to finish, and for replies to be sent, when a server ends.
constexpr std::chrono::milliseconds kTcpServerFinishGrace{500};
constexpr std::chrono::milliseconds kTcpServerDrain{2000};
constexpr uint64_t kLongestCallUs = 3600ULL * 1000 * 1000 * 1000;
// Pause of the acceptor while the process has no descriptor, thread or memory for a connection.
constexpr std::chrono::milliseconds kExhaustedPause{20};
// Descriptors that connections leave to the rest of the process: files, snapshots, metrics.
constexpr size_t kReservedDescriptors = 64;

// First bytes of HTTP/2 connections, and so of gRPC.
constexpr std::string_view kGrpcPreface = "PRI ";

// As many connections as the options allow, but no more than there are descriptors for.
TcpConnections::Limits limits_of(const GrpcOptions& options) {
  TcpConnections::Limits limits;
  limits.known = static_cast<size_t>(options.max_handler_threads);
  limits.unknown = static_cast<size_t>(options.max_unknown_connections);
  limits.greeting = options.handshake_timeout;
  rlimit descriptors{};
  if (getrlimit(RLIMIT_NOFILE, &descriptors) != 0 || descriptors.rlim_cur == RLIM_INFINITY)
    return limits;
  const auto all = static_cast<size_t>(descriptors.rlim_cur);
  // unknown connections twice: those that a call is awaited from, and those whose call is handled
  const size_t others = kReservedDescriptors + 2 * limits.unknown;
  const size_t left = all > others ? all - others : all / 4;
  limits.known = std::clamp<size_t>(left, 1, limits.known);
  limits.unknown = std::clamp<size_t>(all / 8, 1, limits.unknown);
  return limits;
}

// Connections that were handed over to the gRPC server, which closes their descriptors when it is
// done with them. Thread-safety: all members.
class GuestSockets {
 public:
  explicit GuestSockets(size_t limit) : limit_(limit) {}
  // Counts one more, unless there are too many.
  bool add(int fd) {
    const std::lock_guard lock(mutex_);
    std::erase_if(open_,
                  [](const auto& guest) { return identity_of(guest.first) != guest.second; });
    if (open_.size() >= limit_) return false;
    open_.emplace_back(fd, identity_of(fd));
    return true;
  }

 private:
  // A number that no other socket has while this one is open; 0 for a closed descriptor.
  static ino_t identity_of(int fd) {
    struct stat facts {};
    return fstat(fd, &facts) == 0 ? facts.st_ino : 0;
  }

  const size_t limit_;
  std::mutex mutex_;
  std::vector<std::pair<int, ino_t>> open_;
};

// Refuses all calls by gRPC, which has no proof of the job's key.
class NoKeyHandler final : public Handler {
 public:
  Status handle(const Request& /*request*/, Deadline /*deadline*/, ReplySink& /*reply*/) override {
    return lacks_key();
  }
  [[nodiscard]] StatusOr<bool> knows(const Request& /*envelope*/) const override {
    return lacks_key();
  }
};

class TcpListener final : public Listener {
 public:
  TcpListener(std::shared_ptr<TcpShared> shared, Handler& handler)
      : shared_(std::move(shared)),
        handler_(handler),
        admission_(shared_->options, handler),
        limits_(limits_of(shared_->options)),
        guest_sockets_(limits_.known),
        connections_(limits_) {}
  ~TcpListener() override;

  [[nodiscard]] const std::string& endpoint() const override { return endpoint_; }
  Status start(const Endpoint& endpoint);

 private:
  void accept_all();
  bool admit(Socket socket);
  void serve(TcpConnection& connection);
  bool may_call(TcpConnection& connection, std::span<std::byte> buffer);
  bool serve_call(TcpConnection& connection, std::span<std::byte> buffer, bool first);
  bool await_call(TcpConnection& connection, bool first);
  StatusOr<MessageGrant> grant(TcpConnection& connection, const Request& envelope);
  StatusOr<bool> receive(TcpConnection& connection, CallReader& reader,
                         std::span<std::byte> buffer);
  Status handle(TcpConnection& connection, const CallReader& reader, ReplyWriter& reply);
  void hand_over(TcpConnection& connection);
  void count(const CallReader& reader, uint64_t sent, bool ok, Clock::time_point begin) const;

  std::shared_ptr<TcpShared> shared_;
  Handler& handler_;
  Admission admission_;
  NoKeyHandler no_key_;
  std::unique_ptr<GrpcGuests> guests_;
  std::string endpoint_;
  Socket listener_;
  std::thread acceptor_;
  const TcpConnections::Limits limits_;
  GuestSockets guest_sockets_;
  TcpConnections connections_;
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
  try {
    acceptor_ = std::thread([this] { accept_all(); });
  } catch (const std::exception& error) {
    return {StatusCode::kResource,
            fmt::format("no thread for the server at {}: {}", endpoint_, error.what())};
  }
  return Ok();
}

void TcpListener::accept_all() {
  while (connections_.wait_for_place()) {
    Socket socket(accept4(listener_.fd(), nullptr, nullptr, SOCK_CLOEXEC));
    connections_.remove_gone();
    if (socket.is_open() && admit(std::move(socket))) continue;
    // no descriptor or thread is left
    connections_.make_room();
    std::this_thread::sleep_for(kExhaustedPause);
  }
}

// False if the connection cannot be served; it is closed then.
bool TcpListener::admit(Socket socket) {
  const GrpcOptions& options = shared_->options;
  socket.tune(options.keepalive_time, options.keepalive_timeout);
  socket.set_floor(options.min_bytes_per_second, options.stall_timeout);
  return connections_
      .add(std::move(socket), [this](TcpConnection& connection) { serve(connection); })
      .ok();
}

void TcpListener::serve(TcpConnection& connection) {
  try {
    std::array<std::byte, kReceiveBuffer> buffer;  // NOLINT: filled by recv
    bool first = true;
    if (may_call(connection, buffer)) {
      while (serve_call(connection, buffer, first)) first = false;
    }
  } catch (const std::exception&) {
    // no memory for a message or for its error: only this connection ends
  }
  connection.socket.shut_down();
  connections_.note(connection, Stage::kGone);
}

// Waits for the first byte of a call. False if the connection has ended or was handed over.
bool TcpListener::await_call(TcpConnection& connection, bool first) {
  const GrpcOptions& options = shared_->options;
  Socket& socket = connection.socket;
  if (!connections_.note(connection, Stage::kIdle)) return false;
  const auto greet_by = connections_.greet_by(connection);
  const auto left = connection.is_known
                        ? options.idle_timeout
                        : std::chrono::ceil<std::chrono::milliseconds>(greet_by - Clock::now());
  pollfd wait{socket.fd(), POLLIN, 0};
  if (left.count() <= 0 || poll(&wait, 1, static_cast<int>(left.count())) <= 0) return false;
  if (!connections_.note(connection, Stage::kReceiving)) return false;
  if (connection.is_known) return true;
  socket.set_deadline(greet_by);
  if (!first || guests_ == nullptr || !socket.starts_with(kGrpcPreface)) return true;
  hand_over(connection);
  return false;
}

// The limits of a call: those of its caller. A connection is known from its first call on that
// comes from a known caller.
StatusOr<MessageGrant> TcpListener::grant(TcpConnection& connection, const Request& envelope) {
  MILLRACE_ASSIGN_OR_RETURN(MessageGrant grant, admission_.admit(envelope));
  if (connection.is_known) return grant;
  if (grant.is_unknown) {
    // refused before it has an effect
    if (envelope.method == Method::kHello) MILLRACE_RETURN_IF_ERROR(connections_.check_room());
    return grant;
  }
  MILLRACE_RETURN_IF_ERROR(connections_.make_known(connection));
  connection.socket.set_patience(shared_->options.stall_timeout);
  return grant;
}

StatusOr<bool> TcpListener::receive(TcpConnection& connection, CallReader& reader,
                                    std::span<std::byte> buffer) {
  try {
    return connection.socket.receive(reader, buffer);
  } catch (const std::bad_alloc&) {
    return Status(StatusCode::kResource, "the server has no memory for the call");
  }
}

// Before the first call: the caller proves that it has the key of the job, if there is one.
bool TcpListener::may_call(TcpConnection& connection, std::span<std::byte> buffer) {
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
bool TcpListener::serve_call(TcpConnection& connection, std::span<std::byte> buffer, bool first) {
  if (!await_call(connection, first)) return false;
  const auto begin = Clock::now();
  const bool was_known = connection.is_known;
  CallReader reader(shared_->pool, shared_->options.max_message_bytes);
  if (!connection.is_known) reader.reserve_head_in(admission_.unknown());
  reader.set_admission([&](const Request& envelope) { return grant(connection, envelope); });
  ReplyWriter answer(shared_->pool);
  const StatusOr<bool> received = receive(connection, reader, buffer);
  if (received.ok() && !*received) return false;
  Status status = received.status();
  if (status.ok()) {
    const StatusOr<bool> may_begin = connections_.begin_handling(connection);
    if (may_begin.ok() && !*may_begin) return false;
    status = may_begin.ok() ? handle(connection, reader, answer) : may_begin.status();
  }
  const OutgoingMessage message = answer.finish(status);
  count(reader, message.bytes(), status.ok(), begin);
  connections_.note(connection, Stage::kReplying);
  if (!was_known) {
    connection.socket.set_patience(connection.is_known ? shared_->options.stall_timeout
                                                       : shared_->options.handshake_timeout);
  }
  const bool sent = connection.socket.send(message).ok();
  if (!received.ok()) connection.socket.finish(buffer);
  return sent && received.ok();
}

// Passes a gRPC connection to the gRPC server, which needs a non-blocking socket.
void TcpListener::hand_over(TcpConnection& connection) {
  Socket guest = connections_.release(connection);
  if (!guest_sockets_.add(guest.fd())) return;
  guest.set_patience(std::chrono::milliseconds(0));
  const int fd = guest.fd();
  fcntl(fd, F_SETFL, fcntl(fd, F_GETFL, 0) | O_NONBLOCK);
  guests_->take(guest.release());
}

Status TcpListener::handle(TcpConnection& connection, const CallReader& reader,
                           ReplyWriter& reply) {
  const auto wait = std::chrono::microseconds(std::min(reader.timeout_us(), kLongestCallUs));
  const Request& request = reader.request();
  Status status;
  try {
    status = handler_.handle(request, Clock::now() + wait, reply);
  } catch (const std::bad_alloc&) {
    return {StatusCode::kResource,
            fmt::format("the server has no memory for '{}'", method_name(request.method))};
  } catch (const std::exception& error) {
    return Internal("unexpected exception in '{}': {}", method_name(request.method), error.what());
  }
  // after its hello, the caller is known
  if (!status.ok() || connection.is_known) return status;
  const StatusOr<bool> is_known = handler_.knows(request);
  // without a place, the connection is closed in time, and an error names the reason for the next
  // one
  if (is_known.ok() && *is_known) static_cast<void>(connections_.make_known(connection));
  return status;
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

TcpListener::~TcpListener() {
  if (!acceptor_.joinable()) return;
  listener_.shut_down();
  connections_.close(kTcpServerFinishGrace, kTcpServerDrain);
  acceptor_.join();
  // no thread adds connections any more
  connections_.join();
}

}  // namespace

StatusOr<std::unique_ptr<Listener>> make_tcp_listener(std::shared_ptr<TcpShared> shared,
                                                      const Endpoint& endpoint, Handler& handler) {
  auto listener = std::make_unique<TcpListener>(std::move(shared), handler);
  MILLRACE_RETURN_IF_ERROR(listener->start(endpoint));
  return std::unique_ptr<Listener>(std::move(listener));
}

}  // namespace millrace::ps
