#include "ps/discovery/etcd_calls.h"

#include <thread>
#include <utility>

#include <fmt/format.h>
#include <google/protobuf/message_lite.h>
#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/impl/codegen/client_unary_call.h>
#include <grpcpp/impl/codegen/rpc_method.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/channel_arguments.h>
#include <grpcpp/support/sync_stream.h>

#include "framework/base/errors.h"
#include "ps/transport/endpoint.h"
#include "ps/transport/grpc_parts.h"

namespace millrace::ps {
namespace {

using Clock = std::chrono::steady_clock;
using google::protobuf::MessageLite;
using ClientStream = grpc::ClientReaderWriter<grpc::ByteBuffer, grpc::ByteBuffer>;

// A member that has not responded after this time is skipped, if there are others.
constexpr std::chrono::milliseconds kEtcdCallsPatience{1500};
constexpr std::chrono::milliseconds kEtcdCallsPause{100};

grpc::ByteBuffer to_buffer(const MessageLite& message) {
  const grpc::Slice slice(message.SerializeAsString());
  return {&slice, 1};
}

bool from_buffer(grpc::ByteBuffer& buffer, MessageLite& message) {
  grpc::Slice slice;
  return buffer.DumpToSingleSlice(&slice).ok() &&
         message.ParseFromArray(slice.begin(), static_cast<int>(slice.size()));
}

std::chrono::system_clock::time_point to_system(Deadline deadline) {
  return std::chrono::system_clock::now() +
         std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
}

grpc::internal::RpcMethod describe(const std::string& path, grpc::internal::RpcMethod::RpcType type,
                                   const std::shared_ptr<grpc::Channel>& channel) {
  return {path.c_str(), type, channel};
}

}  // namespace

StatusOr<std::unique_ptr<EtcdCalls>> EtcdCalls::open(const EtcdOptions& options) {
  if (options.endpoints.empty()) return InvalidArgument("etcd: expected at least one endpoint");
  MILLRACE_ASSIGN_OR_RETURN(const GrpcCredentials credentials, make_credentials(options.tls));
  std::unique_ptr<EtcdCalls> calls(new EtcdCalls());
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  // also limits each connection attempt: a member that is starting accepts connections that it
  // never serves
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 1000);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
  for (const std::string& endpoint : options.endpoints) {
    MILLRACE_RETURN_IF_ERROR(parse_endpoint(endpoint).status());
    calls->members_.push_back(
        {endpoint, grpc::CreateCustomChannel(endpoint, credentials.client, arguments)});
  }
  return calls;
}

// Tries the members in turn, repeatedly, until one responds.
template <typename Call>
Status EtcdCalls::ask_members(const std::string& method, Deadline deadline, const Call& call) {
  const size_t first = last_good_;
  std::vector<std::string> words(members_.size());
  for (size_t i = 0;; ++i) {
    const size_t at = (first + i) % members_.size();
    grpc::ClientContext context;
    context.set_deadline(to_system(std::min(deadline, Clock::now() + kEtcdCallsPatience)));
    // gRPC makes progress on connections only while a call waits for one
    context.set_wait_for_ready(true);
    const grpc::Status status = call(members_[at].channel, context);
    if (status.ok()) {
      last_good_ = at;
      return Ok();
    }
    words[at] = fmt::format("{}: {}", members_[at].endpoint, status.error_message());
    const bool is_absent = status.error_code() == grpc::StatusCode::UNAVAILABLE ||
                           status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED;
    if (is_absent && Clock::now() + kEtcdCallsPause < deadline) {
      std::this_thread::sleep_for(kEtcdCallsPause);
      continue;
    }
    Status failed(StatusCode::kDistributed, fmt::format("no etcd member answered '{}'", method));
    for (const std::string& word : words)
      if (!word.empty()) failed = std::move(failed).with_note(word);
    return failed;
  }
}

Status EtcdCalls::ask(const std::string& method, const MessageLite& request, MessageLite& answer,
                      Deadline deadline) {
  const std::string path = "/etcdserverpb." + method;
  const grpc::ByteBuffer sent = to_buffer(request);
  const auto call = [&](const std::shared_ptr<grpc::Channel>& channel,
                        grpc::ClientContext& context) {
    grpc::ByteBuffer got;
    grpc::Status status = grpc::internal::BlockingUnaryCall<grpc::ByteBuffer, grpc::ByteBuffer>(
        channel.get(), describe(path, grpc::internal::RpcMethod::NORMAL_RPC, channel), &context,
        sent, &got);
    if (status.ok() && !from_buffer(got, answer))
      status = {grpc::StatusCode::DATA_LOSS, "the response cannot be parsed"};
    return status;
  };
  return ask_members(method, deadline, call);
}

Status EtcdCalls::ask_stream(const std::string& method, const MessageLite& request,
                             MessageLite& answer, Deadline deadline) {
  const std::string path = "/etcdserverpb." + method;
  const grpc::ByteBuffer sent = to_buffer(request);
  const auto call = [&](const std::shared_ptr<grpc::Channel>& channel,
                        grpc::ClientContext& context) {
    const std::unique_ptr<ClientStream> stream(
        grpc::internal::ClientReaderWriterFactory<grpc::ByteBuffer, grpc::ByteBuffer>::Create(
            channel.get(), describe(path, grpc::internal::RpcMethod::BIDI_STREAMING, channel),
            &context));
    grpc::ByteBuffer got;
    const bool answered = stream->Write(sent) && stream->Read(&got) && from_buffer(got, answer);
    stream->WritesDone();
    context.TryCancel();  // no further response is expected
    const grpc::Status ended = stream->Finish();
    if (answered) return grpc::Status::OK;
    return ended.ok() ? grpc::Status(grpc::StatusCode::DATA_LOSS, "no response") : ended;
  };
  return ask_members(method, deadline, call);
}

}  // namespace millrace::ps
