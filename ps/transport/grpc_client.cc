#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <set>
#include <utility>

#include <grpc/support/time.h>
#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/impl/codegen/client_unary_call.h>
#include <grpcpp/impl/codegen/rpc_method.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/channel_arguments.h>

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "ps/transport/call_text.h"
#include "ps/transport/grpc_parts.h"
#include "ps/transport/grpc_stream.h"

namespace millrace::ps {
namespace {

using Clock = std::chrono::steady_clock;

// Extra time after the deadline for the server's own error, which says what the call waited for.
constexpr std::chrono::milliseconds kServerErrorGrace{300};
// Clocks would overflow for deadlines that mean "never".
constexpr std::chrono::hours kLongestCall{1000};
// How long gRPC may hold memory of a finished call before its connection is closed.
constexpr std::chrono::milliseconds kReleaseTime{200};

// Waits until all holders of a token have released it.
class Lease {
 public:
  Lease()
      : state_(std::make_shared<State>()), token_(state_.get(), [state = state_](void*) {
          const std::lock_guard<std::mutex> lock(state->mutex);
          state->free = true;
          state->changed.notify_all();
        }) {}

  [[nodiscard]] const std::shared_ptr<void>& token() const { return token_; }
  // Releases its own token. False if others still hold one at the deadline.
  bool wait_until(Deadline deadline) {
    token_.reset();
    std::unique_lock<std::mutex> lock(state_->mutex);
    return state_->changed.wait_until(lock, deadline, [this] { return state_->free; });
  }
  void wait() {
    token_.reset();
    std::unique_lock<std::mutex> lock(state_->mutex);
    state_->changed.wait(lock, [this] { return state_->free; });
  }

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    bool free = false;
  };
  std::shared_ptr<State> state_;
  std::shared_ptr<void> token_;
};

// A connection and its streams.
struct Connection {
  std::shared_ptr<grpc::Channel> channel;
  std::set<CallStream*> calls;                       // streams in use
  std::vector<std::unique_ptr<CallStream>> resting;  // last used one at the end
  bool broken = false;
};

class GrpcChannel final : public Channel {
 public:
  GrpcChannel(std::shared_ptr<GrpcShared> shared, std::string endpoint)
      : shared_(std::move(shared)), endpoint_(std::move(endpoint)) {}

  [[nodiscard]] const std::string& endpoint() const override { return endpoint_; }
  Status call(const Request& request, Deadline deadline, Reply& reply) override;
  void interrupt() override;

 private:
  std::shared_ptr<grpc::Channel> new_channel();
  // The stream of a call and the connection to which it belongs.
  struct Place {
    std::shared_ptr<Connection> connection;
    std::unique_ptr<CallStream> stream;
  };
  Place enter();
  Place take_place();
  void leave(Place place, bool may_rest);
  Status wait_connected(grpc::Channel& channel, Deadline deadline);
  Status prepare(const Place& place, const Request& request, Deadline deadline,
                 OutgoingMessage& message);
  Status exchange(CallStream& stream, const OutgoingMessage& message, const Lease& lease,
                  Deadline until, ReplyReader& reader);
  void cut(Connection& connection);
  [[nodiscard]] Status explain(const grpc::Status& ended, const Request& request,
                               Clock::time_point begin) const;

  std::shared_ptr<GrpcShared> shared_;
  std::string endpoint_;
  std::mutex mutex_;
  std::vector<std::shared_ptr<Connection>> connections_;
  bool was_connected_ = false;
};

std::shared_ptr<grpc::Channel> GrpcChannel::new_channel() {
  const GrpcOptions& options = shared_->options;
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(static_cast<int>(kChunkBytes + 2 * kMaxHeadBytes));
  arguments.SetMaxSendMessageSize(-1);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, static_cast<int>(options.keepalive_time.count()));
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS,
                   static_cast<int>(options.keepalive_timeout.count()));
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 1000);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
  // Callers repeat calls themselves; proxies and service configs from name servers are not used.
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_SERVICE_CONFIG_DISABLE_RESOLUTION, 1);
  // Otherwise, channels to one server would share a connection and its limit of streams.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  if (options.tls && !options.tls->server_name.empty())
    arguments.SetSslTargetNameOverride(options.tls->server_name);
  return grpc::CreateCustomChannel(endpoint_, shared_->credentials.client, arguments);
}

// Takes a stream of a connection that has room for it.
GrpcChannel::Place GrpcChannel::take_place() {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto limit = static_cast<size_t>(shared_->options.max_streams_per_connection);
  Place place;
  for (const std::shared_ptr<Connection>& connection : connections_) {
    if (!connection->broken && connection->calls.size() < limit) place.connection = connection;
    if (place.connection != nullptr) break;
  }
  if (place.connection == nullptr) {
    place.connection = std::make_shared<Connection>();
    place.connection->channel = new_channel();
    connections_.push_back(place.connection);
  }
  std::vector<std::unique_ptr<CallStream>>& resting = place.connection->resting;
  if (resting.empty()) {
    place.stream = std::make_unique<CallStream>(place.connection->channel);
  } else {
    place.stream = std::move(resting.back());
    resting.pop_back();
  }
  place.connection->calls.insert(place.stream.get());
  return place;
}

GrpcChannel::Place GrpcChannel::enter() {
  for (;;) {
    Place place = take_place();
    if (place.stream->is_new() || place.stream->is_ready(kStreamUse)) return place;
    leave(std::move(place), /*may_rest=*/false);
  }
}

void GrpcChannel::leave(Place place, bool may_rest) {
  if (may_rest) place.stream->rest();
  const std::lock_guard<std::mutex> lock(mutex_);
  Connection& connection = *place.connection;
  connection.calls.erase(place.stream.get());
  if (may_rest && !connection.broken) connection.resting.push_back(std::move(place.stream));
}

// Closes a connection whose peer does not receive, and ends all its calls.
void GrpcChannel::cut(Connection& connection) {
  std::vector<std::unique_ptr<CallStream>> over;  // destroyed after the lock is released
  const std::lock_guard<std::mutex> lock(mutex_);
  connection.broken = true;
  for (CallStream* const call : connection.calls) call->cancel();
  over.swap(connection.resting);
  std::erase_if(connections_, [&](const auto& held) { return held.get() == &connection; });
}

void GrpcChannel::interrupt() {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const std::shared_ptr<Connection>& connection : connections_)
    for (CallStream* const call : connection->calls) call->cancel();
}

Status GrpcChannel::wait_connected(grpc::Channel& channel, Deadline deadline) {
  grpc_connectivity_state state = channel.GetState(true);
  if (state == GRPC_CHANNEL_READY) return Ok();
  const auto begin = Clock::now();
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (was_connected_ || shared_->options.short_first_connect)
      deadline = std::min(deadline, begin + shared_->options.reconnect_timeout);
  }
  while (state != GRPC_CHANNEL_READY && channel.WaitForStateChange(state, to_gpr(deadline)))
    state = channel.GetState(true);
  if (state == GRPC_CHANNEL_READY) {
    const std::lock_guard<std::mutex> lock(mutex_);
    was_connected_ = true;
    return Ok();
  }
  // A probe that does not wait returns the reason why there is no connection; no server has its
  // method.
  grpc::ClientContext context;
  context.set_deadline(to_gpr(Clock::now() + std::chrono::milliseconds(20)));
  const grpc::internal::RpcMethod method("/millrace.PsService/Reach",
                                         grpc::internal::RpcMethod::NORMAL_RPC);
  const grpc::ByteBuffer nothing(nullptr, 0);
  grpc::ByteBuffer answer;
  const grpc::Status why =
      grpc::internal::BlockingUnaryCall(&channel, method, &context, nothing, &answer);
  const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  Status status(StatusCode::kDistributed,
                fmt::format("no connection to {} within {:.1f} s", endpoint_, seconds));
  if (why.error_code() == grpc::StatusCode::UNAVAILABLE)
    status = std::move(status).with_note(printable(why.error_message()));
  return std::move(status).with_hint("is the server running, and is the endpoint right?");
}

// Connects and encodes the request.
Status GrpcChannel::prepare(const Place& place, const Request& request, Deadline deadline,
                            OutgoingMessage& message) {
  if (place.stream->is_new())
    MILLRACE_RETURN_IF_ERROR(wait_connected(*place.connection->channel, deadline));
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

// Sends the message and reads the response until the reader is done or the stream has ended. The
// status is that of reading the response.
Status GrpcChannel::exchange(CallStream& stream, const OutgoingMessage& message, const Lease& lease,
                             Deadline until, ReplyReader& reader) {
  MessageSplitter splitter(message, lease.token());
  grpc::ByteBuffer part;
  for (bool taken = true; taken && !splitter.at_end();) {
    splitter.next(part);
    taken = stream.write(part, until);
    part.Clear();
  }
  // A server that refuses a message returns the reason before it has received all of it.
  while (!reader.done() && stream.read(part, until)) MILLRACE_RETURN_IF_ERROR(feed(reader, part));
  if (reader.done() && shared_->options.tls) return check_server(*stream.context().auth_context());
  return Ok();
}

Status GrpcChannel::call(const Request& request, Deadline deadline, Reply& reply) {
  const auto begin = Clock::now();
  deadline = std::min(deadline, begin + kLongestCall);
  OutgoingMessage message;
  Lease lease;
  grpc::Status ended;
  ReplyReader reader(shared_->pool, reply, shared_->options.max_message_bytes);
  Place place = enter();
  Status status = prepare(place, request, deadline, message);
  if (!status.ok()) {
    leave(std::move(place), /*may_rest=*/false);
    return status;
  }
  status = exchange(*place.stream, message, lease, deadline + kServerErrorGrace, reader);
  const bool is_over = status.ok() && reader.done();
  const bool may_rest = is_over && reader.status().ok();
  if (!may_rest) ended = place.stream->finish();
  if (!lease.wait_until(Clock::now() + kReleaseTime)) cut(*place.connection);
  leave(std::move(place), may_rest);
  // The call has ended, and its connection if it was closed, so gRPC releases the memory soon.
  lease.wait();
  if (!status.ok()) return std::move(status).with_note("in the response of " + endpoint_);
  if (!is_over) return explain(ended, request, begin);
  if (reader.status().ok()) return Ok();
  return Status(reader.status()).with_note("from pserver " + endpoint_);
}

Status GrpcChannel::explain(const grpc::Status& ended, const Request& request,
                            Clock::time_point begin) const {
  const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  const std::string call = describe_call(request);
  const auto say = [&](StatusCode code, std::string_view what) {
    Status status(code, fmt::format("{} {} {}", call, what, endpoint_));
    if (!ended.error_message().empty())
      status = std::move(status).with_note("gRPC: " + printable(ended.error_message()));
    return status;
  };
  switch (ended.error_code()) {
    case grpc::StatusCode::DEADLINE_EXCEEDED:
      return {StatusCode::kDistributed,
              fmt::format("{} got no answer from {} within {:.1f} s", call, endpoint_, seconds)};
    case grpc::StatusCode::UNIMPLEMENTED:
      return say(StatusCode::kDistributed, "found no pserver with this protocol at");
    case grpc::StatusCode::RESOURCE_EXHAUSTED:
      return say(StatusCode::kResource, "exceeds a limit of");
    case grpc::StatusCode::CANCELLED:
      return say(StatusCode::kDistributed, "was cancelled by");
    case grpc::StatusCode::OK:
      return say(StatusCode::kDistributed, "got an incomplete response from");
    default:
      return say(StatusCode::kDistributed, "lost the connection to");
  }
}

}  // namespace

std::shared_ptr<Channel> make_grpc_channel(std::shared_ptr<GrpcShared> shared,
                                           const std::string& endpoint) {
  return std::make_shared<GrpcChannel>(std::move(shared), endpoint);
}

}  // namespace millrace::ps
