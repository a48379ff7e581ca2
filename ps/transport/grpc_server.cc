#include <algorithm>
#include <condition_variable>
#include <exception>
#include <map>
#include <mutex>
#include <new>
#include <thread>
#include <utility>

#include <grpc/support/time.h>
#include <grpcpp/impl/codegen/rpc_method.h>
#include <grpcpp/impl/codegen/rpc_service_method.h>
#include <grpcpp/impl/codegen/service_type.h>
#include <grpcpp/resource_quota.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <grpcpp/server_context.h>
#include <grpcpp/server_posix.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/method_handler.h>
#include <grpcpp/support/sync_stream.h>

#include "framework/base/errors.h"
#include "ps/metrics/metrics.h"
#include "ps/transport/admission.h"
#include "ps/transport/endpoint.h"
#include "ps/transport/grpc_parts.h"

namespace millrace::ps {
namespace {

using Clock = std::chrono::steady_clock;
using Stream = grpc::ServerReaderWriter<grpc::ByteBuffer, grpc::ByteBuffer>;

// Time for running calls to finish, and for replies to be sent, when a server ends.
constexpr std::chrono::milliseconds kFinishGrace{500};
constexpr std::chrono::milliseconds kDrain{2000};
// Idle time of connections that a TCP server accepted and handed over, whose number is limited.
constexpr std::chrono::milliseconds kGuestIdle{30000};
// How long a silent stream is kept when there are too many.
constexpr std::chrono::milliseconds kSilentStreamTurn{500};
constexpr std::chrono::microseconds kLongestCall = std::chrono::hours(1000);

// When the caller stops waiting: its own timeout, or earlier if gRPC has an earlier deadline.
Deadline deadline_of(const grpc::ServerContext& context, uint64_t timeout_us) {
  const auto now = Clock::now();
  const auto limit = static_cast<uint64_t>(kLongestCall.count());
  const Deadline own = now + std::chrono::microseconds(std::min(timeout_us, limit));
  const gpr_timespec at = gpr_convert_clock_type(context.raw_deadline(), GPR_CLOCK_MONOTONIC);
  const gpr_timespec left = gpr_time_sub(at, gpr_now(GPR_CLOCK_MONOTONIC));
  if (gpr_time_cmp(left, gpr_time_from_hours(1000, GPR_TIMESPAN)) >= 0) return own;
  return std::min(own, now + std::chrono::nanoseconds(left.tv_sec * 1000000000 + left.tv_nsec));
}

// The streams with calls in progress, for ending those that make no progress.
class ActiveCalls {
 public:
  enum class Stage { kResting, kReceiving, kHandling, kReplying };

  // \param max_unknown  how many streams may wait for a call of a known caller
  // \param greeting     for how long
  ActiveCalls(int max_unknown, std::chrono::milliseconds greeting)
      : max_unknown_(static_cast<size_t>(max_unknown)), greeting_(greeting) {}

  // Adds a stream, and ends the oldest one of too many unknown ones. False if the server is about
  // to end.
  bool enter(grpc::ServerContext& context) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (closing_) return false;
    size_t unknown = 0;
    auto oldest = calls_.end();
    for (auto at = calls_.begin(); at != calls_.end(); ++at) {
      if (!at->second.is_waiting()) continue;
      ++unknown;
      if (oldest == calls_.end() || at->second.begin < oldest->second.begin) oldest = at;
    }
    const auto now = Clock::now();
    // streams that have just been opened are about to call
    if (unknown > 0 && unknown >= max_unknown_ && now - oldest->second.begin > kSilentStreamTurn) {
      oldest->second.is_ended = true;
      oldest->first->TryCancel();
    }
    calls_[&context] = {Stage::kReceiving, now, now};
    return true;
  }
  // A call of a known caller has arrived.
  void make_known(grpc::ServerContext& context) {
    const std::lock_guard<std::mutex> lock(mutex_);
    calls_[&context].is_known = true;
  }
  // Records progress of a call. False if the server is about to end.
  bool note(grpc::ServerContext& context, Stage stage) {
    const std::lock_guard<std::mutex> lock(mutex_);
    Call& call = calls_[&context];
    call.stage = stage;
    call.progress = Clock::now();
    return !closing_;
  }
  void leave(grpc::ServerContext& context) {
    const std::lock_guard<std::mutex> lock(mutex_);
    calls_.erase(&context);
    changed_.notify_all();
  }
  // Ends calls without progress, and idle streams.
  void cancel_stalled(std::chrono::milliseconds timeout) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto now = Clock::now();
    for (const auto& [context, state] : calls_) {
      const auto limit = state.stage == Stage::kResting ? kStreamRest : timeout;
      const bool is_late = state.is_waiting() && now - state.begin > greeting_;
      if (state.stage != Stage::kHandling && (is_late || now - state.progress > limit))
        context->TryCancel();
    }
  }
  // Refuses new calls, waits shortly for running calls to finish, cancels those that are not
  // replying then, and waits longer for the others.
  void close() {
    std::unique_lock<std::mutex> lock(mutex_);
    closing_ = true;
    changed_.notify_all();
    for (const auto& [context, state] : calls_)
      if (state.stage == Stage::kResting) context->TryCancel();
    changed_.wait_for(lock, kFinishGrace, [this] { return calls_.empty(); });
    const auto replying = [this] {
      return std::any_of(calls_.begin(), calls_.end(),
                         [](const auto& call) { return call.second.stage == Stage::kReplying; });
    };
    for (const auto& [context, state] : calls_)
      if (state.stage != Stage::kReplying) context->TryCancel();
    changed_.wait_for(lock, kDrain, [&] { return !replying(); });
  }
  // Sleeps for at most the period; true if the server is about to end.
  bool sleep(std::chrono::milliseconds period) {
    std::unique_lock<std::mutex> lock(mutex_);
    return changed_.wait_for(lock, period, [this] { return closing_; });
  }

 private:
  struct Call {
    Stage stage = Stage::kReceiving;
    Clock::time_point progress;
    Clock::time_point begin;
    bool is_known = false;
    bool is_ended = false;  // to make room
    // True while a call of a known caller is awaited.
    [[nodiscard]] bool is_waiting() const {
      return !is_known && !is_ended && (stage == Stage::kReceiving || stage == Stage::kResting);
    }
  };
  const size_t max_unknown_;
  const std::chrono::milliseconds greeting_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<grpc::ServerContext*, Call> calls_;
  bool closing_ = false;
};

class PsService final : public grpc::Service {
 public:
  PsService(GrpcShared& shared, Handler& handler, ActiveCalls& calls)
      : shared_(shared), handler_(handler), calls_(calls), admission_(shared.options, handler) {
    AddMethod(new grpc::internal::RpcServiceMethod(
        kCallMethod, grpc::internal::RpcMethod::BIDI_STREAMING,
        new grpc::internal::BidiStreamingHandler<PsService, grpc::ByteBuffer, grpc::ByteBuffer>(
            [](PsService* service, grpc::ServerContext* context, Stream* stream) {
              return service->serve(*context, *stream);
            },
            this)));
  }

 private:
  grpc::Status serve(grpc::ServerContext& context, Stream& stream);
  // Serves a call. False if it was the last one; `ended` is then the status with which the stream
  // ends.
  bool exchange(grpc::ServerContext& context, Stream& stream, grpc::Status& ended);
  // False if the stream ended within or before the message.
  // \param begin  receives the time when its first part arrived
  bool receive(grpc::ServerContext& context, Stream& stream, CallReader& reader,
               Clock::time_point& begin, Status& status);
  [[nodiscard]] Status check_rate(uint64_t received, Clock::time_point begin) const;
  Status handle(grpc::ServerContext& context, const CallReader& reader, ReplyWriter& reply);
  // False if the stream has ended.
  bool reply(grpc::ServerContext& context, Stream& stream, OutgoingMessage message);

  GrpcShared& shared_;
  Handler& handler_;
  ActiveCalls& calls_;
  Admission admission_;
};

grpc::Status PsService::serve(grpc::ServerContext& context, Stream& stream) {
  if (!calls_.enter(context)) return {grpc::StatusCode::UNAVAILABLE, "the server is shutting down"};
  grpc::Status ended;
  while (exchange(context, stream, ended) && calls_.note(context, ActiveCalls::Stage::kResting)) {
  }
  calls_.leave(context);
  return ended;
}

bool PsService::exchange(grpc::ServerContext& context, Stream& stream, grpc::Status& ended) {
  CallReader reader(shared_.pool, shared_.options.max_message_bytes);
  reader.reserve_head_in(admission_.unknown());
  reader.set_admission([&](const Request& envelope) -> StatusOr<MessageGrant> {
    MILLRACE_ASSIGN_OR_RETURN(MessageGrant grant, admission_.admit(envelope));
    if (!grant.is_unknown) calls_.make_known(context);
    return grant;
  });
  ReplyWriter answer(shared_.pool);
  Status status;
  Clock::time_point begin{};
  if (!receive(context, stream, reader, begin, status)) {
    if (reader.received_bytes() > 0)
      ended = {grpc::StatusCode::INVALID_ARGUMENT, "the call ended within a message"};
    return false;
  }
  const bool is_readable = status.ok();
  if (is_readable) {
    if (!calls_.note(context, ActiveCalls::Stage::kHandling)) {
      ended = {grpc::StatusCode::UNAVAILABLE, "the server is shutting down"};
      return false;
    }
    status = handle(context, reader, answer);
  }
  OutgoingMessage message = answer.finish(status);
  if (shared_.options.metrics != nullptr) {
    const std::string_view method =
        reader.has_head() ? method_name(reader.request().method) : "unreadable";
    count_call(*shared_.options.metrics, method,
               {reader.received_bytes(), message.bytes(), status.ok(),
                std::chrono::duration<double>(Clock::now() - begin).count()});
  }
  return reply(context, stream, std::move(message)) && is_readable;
}

bool PsService::receive(grpc::ServerContext& context, Stream& stream, CallReader& reader,
                        Clock::time_point& begin, Status& status) {
  grpc::ByteBuffer part;
  while (status.ok() && !reader.done()) {
    if (!stream.Read(&part)) return false;
    if (begin == Clock::time_point{}) begin = Clock::now();
    try {
      status = feed(reader, part);
    } catch (const std::bad_alloc&) {
      status = Status(StatusCode::kResource, "the server has no memory for the call");
    }
    if (status.ok() && begin + shared_.options.stall_timeout < Clock::now())
      status = check_rate(reader.received_bytes(), begin);
    calls_.note(context, ActiveCalls::Stage::kReceiving);
  }
  return true;
}

Status PsService::check_rate(uint64_t received, Clock::time_point begin) const {
  const double late = std::chrono::duration<double>(Clock::now() - begin).count() -
                      std::chrono::duration<double>(shared_.options.stall_timeout).count();
  const auto floor = static_cast<double>(shared_.options.min_bytes_per_second);
  if (static_cast<double>(received) >= floor * late) return Ok();
  return {StatusCode::kDistributed, "the peer sends too slowly"};
}

Status PsService::handle(grpc::ServerContext& context, const CallReader& reader,
                         ReplyWriter& reply) {
  const Request& request = reader.request();
  if (shared_.options.tls) MILLRACE_RETURN_IF_ERROR(check_caller(*context.auth_context(), request));
  try {
    Status status = handler_.handle(request, deadline_of(context, reader.timeout_us()), reply);
    if (!status.ok() || request.method != Method::kHello) return status;
    // after its hello, the caller is known
    const StatusOr<bool> is_known = handler_.knows(request);
    if (is_known.ok() && *is_known) calls_.make_known(context);
    return status;
  } catch (const std::bad_alloc&) {
    return {StatusCode::kResource,
            fmt::format("the server has no memory for '{}'", method_name(request.method))};
  } catch (const std::exception& error) {
    return Internal("unexpected exception in '{}': {}", method_name(request.method), error.what());
  }
}

bool PsService::reply(grpc::ServerContext& context, Stream& stream, OutgoingMessage message) {
  // gRPC may hold the memory for an unlimited time.
  const auto kept = std::make_shared<OutgoingMessage>(std::move(message));
  MessageSplitter splitter(*kept, kept);
  while (!splitter.at_end()) {
    calls_.note(context, ActiveCalls::Stage::kReplying);
    grpc::ByteBuffer part;
    splitter.next(part);
    if (!stream.Write(part)) return false;
  }
  return true;
}

// The service with its threads, with or without a port.
class RunningServer {
 public:
  RunningServer(std::shared_ptr<GrpcShared> shared, Handler& handler)
      : shared_(std::move(shared)),
        calls_(shared_->options.max_unknown_connections, shared_->options.handshake_timeout),
        service_(*shared_, handler, calls_) {}
  RunningServer(const RunningServer&) = delete;
  RunningServer& operator=(const RunningServer&) = delete;
  ~RunningServer();

  // \param endpoint  empty: no port
  // \returns the port on which it listens
  StatusOr<int> start(const std::string& endpoint);
  grpc::Server* server() { return server_.get(); }

 private:
  void configure(grpc::ServerBuilder& builder, bool has_port);
  void watch();

  std::shared_ptr<GrpcShared> shared_;
  ActiveCalls calls_;
  PsService service_;
  std::unique_ptr<grpc::Server> server_;
  std::thread watchdog_;
};

void RunningServer::configure(grpc::ServerBuilder& builder, bool has_port) {
  const GrpcOptions& options = shared_->options;
  const auto ms = [](std::chrono::milliseconds time) { return static_cast<int>(time.count()); };
  builder.SetMaxReceiveMessageSize(static_cast<int>(kChunkBytes + 2 * kMaxHeadBytes));
  builder.SetMaxSendMessageSize(-1);
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, options.max_streams_per_connection);
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, ms(options.handshake_timeout));
  builder.AddChannelArgument(
      GRPC_ARG_MAX_CONNECTION_IDLE_MS,
      ms(has_port ? options.idle_timeout : std::min(options.idle_timeout, kGuestIdle)));
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, ms(options.keepalive_time));
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, ms(options.keepalive_timeout));
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 1000);
  builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, 8192);
  // Threads are started and ended with the load, up to a limit; a few stay ready for the next
  // calls.
  grpc::ResourceQuota quota("millrace-ps");
  quota.SetMaxThreads(options.max_handler_threads + 1);
  quota.Resize(options.memory_quota_bytes);
  builder.SetResourceQuota(quota);
  builder.SetSyncServerOption(grpc::ServerBuilder::NUM_CQS, 1);
  builder.SetSyncServerOption(grpc::ServerBuilder::MIN_POLLERS, 1);
  builder.SetSyncServerOption(grpc::ServerBuilder::MAX_POLLERS, 8);
  builder.RegisterService(&service_);
}

StatusOr<int> RunningServer::start(const std::string& endpoint) {
  grpc::ServerBuilder builder;
  configure(builder, !endpoint.empty());
  int port = 0;
  if (!endpoint.empty()) builder.AddListeningPort(endpoint, shared_->credentials.server, &port);
  server_ = builder.BuildAndStart();
  if (server_ == nullptr || (!endpoint.empty() && port == 0)) {
    return Status(StatusCode::kDistributed, fmt::format("cannot listen at {}", endpoint))
        .with_hint("check that the address belongs to this machine and the certificate is valid");
  }
  try {
    watchdog_ = std::thread([this] { watch(); });
  } catch (const std::exception& error) {
    return Status(StatusCode::kResource, fmt::format("no thread for the server: {}", error.what()));
  }
  return port;
}

void RunningServer::watch() {
  const GrpcOptions& options = shared_->options;
  const auto shortest = std::min(options.stall_timeout, options.handshake_timeout);
  const auto period = std::min<std::chrono::milliseconds>(std::chrono::seconds(1), shortest / 4);
  while (!calls_.sleep(period)) calls_.cancel_stalled(options.stall_timeout);
}

RunningServer::~RunningServer() {
  if (server_ == nullptr) return;
  calls_.close();
  if (watchdog_.joinable()) watchdog_.join();
  // Remaining calls are cancelled immediately; then this waits for the handlers.
  server_->Shutdown(
      gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_millis(100, GPR_TIMESPAN)));
  server_->Wait();
}

class GrpcListener final : public Listener {
 public:
  GrpcListener(std::shared_ptr<GrpcShared> shared, Handler& handler)
      : running_(std::move(shared), handler) {}
  [[nodiscard]] const std::string& endpoint() const override { return endpoint_; }
  Status start(const std::string& endpoint) {
    MILLRACE_ASSIGN_OR_RETURN(Endpoint got, parse_endpoint(endpoint));
    MILLRACE_ASSIGN_OR_RETURN(got.port, running_.start(endpoint));
    endpoint_ = to_string(got);
    return Ok();
  }

 private:
  RunningServer running_;
  std::string endpoint_;
};

class Guests final : public GrpcGuests {
 public:
  Guests(std::shared_ptr<GrpcShared> shared, Handler& handler)
      : running_(std::move(shared), handler) {}
  Status start() { return running_.start("").status(); }
  void take(int fd) override { grpc::AddInsecureChannelFromFd(running_.server(), fd); }

 private:
  RunningServer running_;
};

}  // namespace

StatusOr<std::unique_ptr<GrpcGuests>> make_guests(const GrpcOptions& options, Handler& handler) {
  MILLRACE_ASSIGN_OR_RETURN(std::shared_ptr<GrpcShared> shared, make_grpc_shared(options));
  auto guests = std::make_unique<Guests>(std::move(shared), handler);
  MILLRACE_RETURN_IF_ERROR(guests->start());
  return std::unique_ptr<GrpcGuests>(std::move(guests));
}

StatusOr<std::unique_ptr<Listener>> make_grpc_listener(std::shared_ptr<GrpcShared> shared,
                                                       const std::string& endpoint,
                                                       Handler& handler) {
  auto listener = std::make_unique<GrpcListener>(std::move(shared), handler);
  MILLRACE_RETURN_IF_ERROR(listener->start(endpoint));
  return std::unique_ptr<Listener>(std::move(listener));
}

}  // namespace millrace::ps
