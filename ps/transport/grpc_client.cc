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
#include <grpcpp/support/sync_stream.h>

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "ps/transport/call_text.h"
#include "ps/transport/grpc_parts.h"

namespace millrace::ps {
namespace {

using Clock = std::chrono::steady_clock;
using ClientStream = grpc::ClientReaderWriter<grpc::ByteBuffer, grpc::ByteBuffer>;

// The server's own word on a deadline, with what it waited for, is worth a moment more.
constexpr std::chrono::milliseconds kGrpcClientLastWord{300};
// Clocks overflow behind deadlines that mean "never".
constexpr std::chrono::hours kGrpcClientLongestCall{1000};
// How long gRPC may hold memory of a call that is over before its connection is cut.
constexpr std::chrono::milliseconds kReleaseTime{200};

// On gRPC's monotonic clock, which steps of the system's time do not touch.
gpr_timespec to_gpr(Deadline deadline) {
  const auto left = std::chrono::duration_cast<std::chrono::microseconds>(deadline - Clock::now());
  return gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                      gpr_time_from_micros(left.count(), GPR_TIMESPAN));
}

// Tells when nobody holds the token any more.
class Lease {
 public:
  Lease()
      : state_(std::make_shared<State>()), token_(state_.get(), [state = state_](void*) {
          const std::lock_guard<std::mutex> lock(state->mutex);
          state->free = true;
          state->changed.notify_all();
        }) {}

  [[nodiscard]] const std::shared_ptr<void>& token() const { return token_; }
  // Gives up the own hold. False if others still have one at the deadline.
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

// One connection and the calls on it.
struct GrpcClientConnection {
  std::shared_ptr<grpc::Channel> channel;
  std::set<grpc::ClientContext*> calls;
  bool broken = false;
};

class GrpcChannel final : public Channel {
 public:
  GrpcChannel(std::shared_ptr<GrpcShared> shared, std::string endpoint)
      : shared_(std::move(shared)), endpoint_(std::move(endpoint)) {}

  [[nodiscard]] const std::string& endpoint() const override { return endpoint_; }
  Status call(const Request& request, Deadline deadline, Reply& reply) override;

 private:
  std::shared_ptr<grpc::Channel> new_channel();
  std::shared_ptr<GrpcClientConnection> enter(grpc::ClientContext& context);
  void leave(GrpcClientConnection& connection, grpc::ClientContext& context);
  Status wait_connected(grpc::Channel& channel, Deadline deadline);
  Status prepare(grpc::Channel& channel, const Request& request, Deadline deadline,
                 OutgoingMessage& message);
  Status exchange(grpc::Channel& channel, grpc::ClientContext& context,
                  const OutgoingMessage& message, const Lease& lease, ReplyReader& reader,
                  grpc::Status& ended);
  static Status receive(ClientStream& stream, grpc::ClientContext& context, ReplyReader& reader);
  void cut(GrpcClientConnection& connection);
  [[nodiscard]] Status explain(const grpc::Status& ended, const Request& request,
                               Clock::time_point begin) const;

  std::shared_ptr<GrpcShared> shared_;
  std::string endpoint_;
  std::mutex mutex_;
  std::vector<std::shared_ptr<GrpcClientConnection>> connections_;
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
  // Repeats are the caller's business; proxies and rules from name servers are nobody's.
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_SERVICE_CONFIG_DISABLE_RESOLUTION, 1);
  // Otherwise channels to one server would share a connection, and its limit of streams.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  if (options.tls && !options.tls->server_name.empty())
    arguments.SetSslTargetNameOverride(options.tls->server_name);
  return grpc::CreateCustomChannel(endpoint_, shared_->credentials.client, arguments);
}

// Registers a call with a connection that has room for it.
std::shared_ptr<GrpcClientConnection> GrpcChannel::enter(grpc::ClientContext& context) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto limit = static_cast<size_t>(shared_->options.max_streams_per_connection);
  for (const std::shared_ptr<GrpcClientConnection>& connection : connections_) {
    if (connection->broken || connection->calls.size() >= limit) continue;
    connection->calls.insert(&context);
    return connection;
  }
  auto connection = std::make_shared<GrpcClientConnection>();
  connection->channel = new_channel();
  connection->calls.insert(&context);
  connections_.push_back(connection);
  return connection;
}

void GrpcChannel::leave(GrpcClientConnection& connection, grpc::ClientContext& context) {
  const std::lock_guard<std::mutex> lock(mutex_);
  connection.calls.erase(&context);
  if (connection.broken && connection.calls.empty()) connection.channel.reset();
}

// Ends a connection whose peer does not take what was sent, with all its calls.
void GrpcChannel::cut(GrpcClientConnection& connection) {
  const std::lock_guard<std::mutex> lock(mutex_);
  connection.broken = true;
  for (grpc::ClientContext* const call : connection.calls) call->TryCancel();
  std::erase_if(connections_, [&](const auto& held) { return held.get() == &connection; });
}

Status GrpcChannel::wait_connected(grpc::Channel& channel, Deadline deadline) {
  grpc_connectivity_state state = channel.GetState(true);
  if (state == GRPC_CHANNEL_READY) return Ok();
  const auto begin = Clock::now();
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (was_connected_ || shared_->options.hurried_first)
      deadline = std::min(deadline, begin + shared_->options.reconnect_timeout);
  }
  while (state != GRPC_CHANNEL_READY && channel.WaitForStateChange(state, to_gpr(deadline)))
    state = channel.GetState(true);
  if (state == GRPC_CHANNEL_READY) {
    const std::lock_guard<std::mutex> lock(mutex_);
    was_connected_ = true;
    return Ok();
  }
  // A call that does not wait says why there is no connection; no server knows its method.
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

Status GrpcChannel::receive(ClientStream& stream, grpc::ClientContext& context,
                            ReplyReader& reader) {
  grpc::ByteBuffer part;
  while (!reader.done() && stream.Read(&part)) {
    Status taken = feed(reader, part);
    if (taken.ok()) continue;
    context.TryCancel();
    return taken;
  }
  return Ok();
}

// Connects and puts the request into form.
Status GrpcChannel::prepare(grpc::Channel& channel, const Request& request, Deadline deadline,
                            OutgoingMessage& message) {
  MILLRACE_RETURN_IF_ERROR(wait_connected(channel, deadline));
  const auto left = std::max(Clock::duration::zero(), deadline - Clock::now());
  const auto us = std::chrono::duration_cast<std::chrono::microseconds>(left).count();
  MILLRACE_RETURN_IF_ERROR(encode_request(request, static_cast<uint64_t>(us), message));
  const uint64_t limit = shared_->options.max_message_bytes;
  if (message.payload_bytes <= limit) return Ok();
  return Status(StatusCode::kResource,
                fmt::format("'{}' would send {} bytes, at most {} are allowed",
                            method_name(request.method), message.payload_bytes, limit))
      .with_hint("the limit is --max-message-bytes");
}

// Sends and receives. The status is that of reading the answer; `ended` is gRPC's.
Status GrpcChannel::exchange(grpc::Channel& channel, grpc::ClientContext& context,
                             const OutgoingMessage& message, const Lease& lease,
                             ReplyReader& reader, grpc::Status& ended) {
  const grpc::internal::RpcMethod method(kCallMethod, grpc::internal::RpcMethod::BIDI_STREAMING);
  const std::unique_ptr<ClientStream> stream(
      grpc::internal::ClientReaderWriterFactory<grpc::ByteBuffer, grpc::ByteBuffer>::Create(
          &channel, method, &context));
  MessageCutter cutter(message, lease.token());
  for (bool taken = true; taken && !cutter.at_end();) {
    grpc::ByteBuffer part;
    cutter.next(part);
    grpc::WriteOptions how;
    if (cutter.at_end()) how.set_last_message();
    taken = stream->Write(part, how);
  }
  Status status = receive(*stream, context, reader);
  ended = stream->Finish();
  if (status.ok() && reader.done() && shared_->options.tls)
    status = check_server(*context.auth_context());
  return status;
}

Status GrpcChannel::call(const Request& request, Deadline deadline, Reply& reply) {
  const auto begin = Clock::now();
  deadline = std::min(deadline, begin + kGrpcClientLongestCall);
  OutgoingMessage message;
  Lease lease;
  grpc::Status ended;
  ReplyReader reader(shared_->pool, reply, shared_->options.max_message_bytes);
  Status status;
  {
    grpc::ClientContext context;
    context.set_deadline(to_gpr(deadline + kGrpcClientLastWord));
    context.set_initial_metadata_corked(true);
    const std::shared_ptr<GrpcClientConnection> connection = enter(context);
    // The connection drops its channel once it is cut and without calls, of which this is one.
    grpc::Channel& channel = *connection->channel;
    status = prepare(channel, request, deadline, message);
    const bool connected = status.ok();
    if (connected) status = exchange(channel, context, message, lease, reader, ended);
    if (connected && !lease.wait_until(Clock::now() + kReleaseTime)) cut(*connection);
    leave(*connection, context);
    if (!connected) return status;
  }
  // Neither this call nor, where it was cut, the connection are there any more: gRPC lets go.
  lease.wait();
  if (!status.ok()) return std::move(status).with_note("in the answer of " + endpoint_);
  if (!reader.done()) return explain(ended, request, begin);
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
      return say(StatusCode::kDistributed, "found no pserver of this protocol at");
    case grpc::StatusCode::RESOURCE_EXHAUSTED:
      return say(StatusCode::kResource, "goes beyond a limit of");
    case grpc::StatusCode::CANCELLED:
      return say(StatusCode::kDistributed, "was ended by");
    case grpc::StatusCode::OK:
      return say(StatusCode::kDistributed, "got half an answer from");
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
