#include <algorithm>
#include <array>
#include <mutex>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "framework/base/errors.h"
#include "ps/transport/call_text.h"
#include "ps/transport/endpoint.h"
#include "ps/transport/key_exchange.h"
#include "ps/transport/tcp_parts.h"

namespace millrace::ps {
namespace {

using Clock = std::chrono::steady_clock;

// Extra time after the deadline for the server's own error, which says what the call waited for.
constexpr std::chrono::milliseconds kTcpClientErrorGrace{300};
constexpr std::chrono::milliseconds kFirstPause{20};
constexpr std::chrono::milliseconds kTcpClientLongestPause{500};
// Clocks would overflow for deadlines that mean "never".
constexpr std::chrono::hours kTcpClientLongestCall{1000};

class TcpChannel final : public Channel {
 public:
  TcpChannel(std::shared_ptr<TcpShared> shared, Endpoint endpoint)
      : shared_(std::move(shared)), parsed_(std::move(endpoint)), endpoint_(to_string(parsed_)) {}

  [[nodiscard]] const std::string& endpoint() const override { return endpoint_; }
  Status call(const Request& request, Deadline deadline, Reply& reply) override;
  void interrupt() override;

 private:
  // A connection while a call uses it.
  struct Busy {
    TcpChannel& channel;
    Socket socket;
    Busy(TcpChannel& its_channel, Socket its_socket);
    Busy(const Busy&) = delete;
    Busy& operator=(const Busy&) = delete;
    ~Busy();
  };
  StatusOr<Socket> take(Deadline deadline);
  StatusOr<Socket> connect(Deadline deadline);
  [[nodiscard]] StatusOr<Socket> try_connect(Deadline deadline) const;
  void give_back(Busy& busy);
  Status encode(const Request& request, Deadline deadline, OutgoingMessage& message) const;

  std::shared_ptr<TcpShared> shared_;
  Endpoint parsed_;
  std::string endpoint_;
  std::mutex mutex_;
  std::vector<Socket> free_;      // last used one at the end
  std::set<const Socket*> busy_;  // waited for by calls
  bool was_connected_ = false;
};

TcpChannel::Busy::Busy(TcpChannel& its_channel, Socket its_socket)
    : channel(its_channel), socket(std::move(its_socket)) {
  const std::lock_guard<std::mutex> lock(channel.mutex_);
  channel.busy_.insert(&socket);
}

TcpChannel::Busy::~Busy() {
  const std::lock_guard<std::mutex> lock(channel.mutex_);
  channel.busy_.erase(&socket);
}

void TcpChannel::interrupt() {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const Socket* const socket : busy_)
    if (socket->is_open()) socket->shut_down();
  free_.clear();
}

StatusOr<Socket> TcpChannel::take(Deadline deadline) {
  for (;;) {
    Socket socket;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (free_.empty()) break;
      socket = std::move(free_.back());
      free_.pop_back();
    }
    if (socket.is_quiet()) return socket;
  }
  return connect(deadline);
}

// Makes one attempt. Errors: kDistributed if another one may succeed; those of a wrong key.
StatusOr<Socket> TcpChannel::try_connect(Deadline deadline) const {
  const GrpcOptions& options = shared_->options;
  MILLRACE_ASSIGN_OR_RETURN(Socket socket, Socket::connect(parsed_, deadline));
  socket.tune(options.keepalive_time, options.keepalive_timeout);
  if (options.job_key == nullptr) return socket;
  socket.set_deadline(std::min(deadline, Clock::now() + options.handshake_timeout));
  MILLRACE_RETURN_IF_ERROR(exchange_as_caller(socket, *options.job_key, endpoint_));
  return socket;
}

StatusOr<Socket> TcpChannel::connect(Deadline deadline) {
  const auto begin = Clock::now();
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (was_connected_ || shared_->options.short_first_connect)
      deadline = std::min(deadline, begin + shared_->options.reconnect_timeout);
  }
  for (auto pause = kFirstPause;; pause = std::min(2 * pause, kTcpClientLongestPause)) {
    StatusOr<Socket> socket = try_connect(deadline);
    if (socket.ok()) {
      const std::lock_guard<std::mutex> lock(mutex_);
      was_connected_ = true;
      return socket;
    }
    if (socket.status().code() != StatusCode::kDistributed) return socket;
    if (Clock::now() + pause >= deadline) {
      std::this_thread::sleep_until(deadline);
      const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
      return Status(StatusCode::kDistributed,
                    fmt::format("no connection to {} within {:.1f} s", endpoint_, seconds))
          .with_note(socket.status().message())
          .with_hint("is the server running, and is the endpoint right?");
    }
    std::this_thread::sleep_for(pause);
  }
}

void TcpChannel::give_back(Busy& busy) {
  const std::lock_guard<std::mutex> lock(mutex_);
  free_.push_back(std::move(busy.socket));
}

Status TcpChannel::encode(const Request& request, Deadline deadline,
                          OutgoingMessage& message) const {
  const auto left = std::max(Clock::duration::zero(), deadline - Clock::now());
  const auto us = std::chrono::duration_cast<std::chrono::microseconds>(left).count();
  MILLRACE_RETURN_IF_ERROR(encode_request(request, static_cast<uint64_t>(us), message));
  const uint64_t limit = shared_->options.max_message_bytes;
  if (message.payload_bytes <= limit) return Ok();
  return Status(StatusCode::kResource,
                fmt::format("'{}' would send {} bytes, but at most {} are allowed",
                            method_name(request.method), message.payload_bytes, limit))
      .with_hint("the limit is --max-message-bytes");
}

Status TcpChannel::call(const Request& request, Deadline deadline, Reply& reply) {
  const auto begin = Clock::now();
  deadline = std::min(deadline, begin + kTcpClientLongestCall);
  MILLRACE_ASSIGN_OR_RETURN(Socket taken, take(deadline));
  Busy busy(*this, std::move(taken));
  Socket& socket = busy.socket;
  OutgoingMessage message;
  if (Status encoded = encode(request, deadline, message); !encoded.ok()) {
    give_back(busy);
    return encoded;
  }
  socket.set_deadline(deadline + kTcpClientErrorGrace);
  const Status sent = socket.send(message);
  // A server that refuses a message returns the reason before it has received all of it.
  ReplyReader reader(shared_->pool, reply, shared_->options.max_message_bytes);
  std::array<std::byte, kReceiveBuffer> buffer;  // NOLINT: filled by recv
  const StatusOr<bool> answered = socket.receive(reader, buffer);
  if (!answered.ok() && answered.status().code() != StatusCode::kDistributed)
    return Status(answered.status()).with_note("in the response of " + endpoint_);
  if (answered.ok() && *answered) {
    if (sent.ok() && reader.status().ok()) give_back(busy);
    if (reader.status().ok()) return Ok();
    return Status(reader.status()).with_note("from pserver " + endpoint_);
  }
  const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  if (Clock::now() >= deadline) {
    return {StatusCode::kDistributed, fmt::format("{} got no answer from {} within {:.1f} s",
                                                  describe_call(request), endpoint_, seconds)};
  }
  const Status& why = !sent.ok() ? sent : answered.status();
  Status lost(StatusCode::kDistributed,
              fmt::format("{} lost the connection to {}", describe_call(request), endpoint_));
  return answered.ok() && sent.ok() ? lost : std::move(lost).with_note(why.message());
}

}  // namespace

std::shared_ptr<Channel> make_tcp_channel(std::shared_ptr<TcpShared> shared,
                                          const Endpoint& endpoint) {
  return std::make_shared<TcpChannel>(std::move(shared), endpoint);
}

}  // namespace millrace::ps
