#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/impl/codegen/client_unary_call.h>
#include <grpcpp/impl/codegen/rpc_method.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/channel_arguments.h>
#include <grpcpp/support/sync_stream.h>

#include "framework/base/errors.h"
#include "framework/base/module.h"
#include "ps/discovery/etcd_member.h"
#include "ps/transport/endpoint.h"
#include "ps/transport/grpc_parts.h"

// The module "etcd".
namespace millrace::ps {
namespace {

using ClientStream = grpc::ClientReaderWriter<grpc::ByteBuffer, grpc::ByteBuffer>;
using grpc::internal::RpcMethod;

std::chrono::system_clock::time_point to_system(Deadline deadline) {
  return std::chrono::system_clock::now() + std::chrono::duration_cast<std::chrono::milliseconds>(
                                                deadline - std::chrono::steady_clock::now());
}

class GrpcMember final : public EtcdMember {
 public:
  GrpcMember(std::string endpoint, std::shared_ptr<grpc::Channel> channel)
      : endpoint_(std::move(endpoint)), channel_(std::move(channel)) {}

  [[nodiscard]] const std::string& endpoint() const override { return endpoint_; }

  Status call(const EtcdRequest& request, Deadline deadline, std::string& response) override {
    grpc::ClientContext context;
    context.set_deadline(to_system(deadline));
    // gRPC makes progress on connections only while a call waits for one
    context.set_wait_for_ready(true);
    const std::string path = "/etcdserverpb." + request.method;
    const grpc::Slice slice(request.message);
    const grpc::ByteBuffer sent(&slice, 1);
    grpc::ByteBuffer got;
    const grpc::Status status =
        request.streams ? exchange(path, context, sent, got) : call_once(path, context, sent, got);
    if (!status.ok()) return to_status(status);
    grpc::Slice bytes;
    if (!got.DumpToSingleSlice(&bytes).ok())
      return {StatusCode::kInvalidData, "the response has no bytes"};
    response.assign(reinterpret_cast<const char*>(bytes.begin()), bytes.size());
    return Ok();
  }

 private:
  [[nodiscard]] RpcMethod describe(const std::string& path, RpcMethod::RpcType type) const {
    return {path.c_str(), type, channel_};
  }

  grpc::Status call_once(const std::string& path, grpc::ClientContext& context,
                         const grpc::ByteBuffer& sent, grpc::ByteBuffer& got) {
    return grpc::internal::BlockingUnaryCall<grpc::ByteBuffer, grpc::ByteBuffer>(
        channel_.get(), describe(path, RpcMethod::NORMAL_RPC), &context, sent, &got);
  }

  grpc::Status exchange(const std::string& path, grpc::ClientContext& context,
                        const grpc::ByteBuffer& sent, grpc::ByteBuffer& got) {
    const std::unique_ptr<ClientStream> stream(
        grpc::internal::ClientReaderWriterFactory<grpc::ByteBuffer, grpc::ByteBuffer>::Create(
            channel_.get(), describe(path, RpcMethod::BIDI_STREAMING), &context));
    const bool answered = stream->Write(sent) && stream->Read(&got);
    stream->WritesDone();
    context.TryCancel();  // no further response is expected
    const grpc::Status ended = stream->Finish();
    if (answered) return grpc::Status::OK;
    return ended.ok() ? grpc::Status(grpc::StatusCode::DATA_LOSS, "no response") : ended;
  }

  static Status to_status(const grpc::Status& status) {
    const bool is_absent = status.error_code() == grpc::StatusCode::UNAVAILABLE ||
                           status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED;
    return {is_absent ? StatusCode::kDistributed : StatusCode::kExecution, status.error_message()};
  }

  const std::string endpoint_;
  const std::shared_ptr<grpc::Channel> channel_;
};

StatusOr<EtcdMembers> open_members(const EtcdOptions& options) {
  MILLRACE_ASSIGN_OR_RETURN(const GrpcCredentials credentials, make_credentials(options.tls));
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  // also limits each connection attempt: a member that is starting accepts connections that it
  // never serves
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 1000);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
  EtcdMembers members;
  for (const std::string& endpoint : options.endpoints) {
    MILLRACE_RETURN_IF_ERROR(parse_endpoint(endpoint).status());
    members.push_back(std::make_unique<GrpcMember>(
        endpoint, grpc::CreateCustomChannel(endpoint, credentials.client, arguments)));
  }
  return members;
}

constexpr EtcdModule kModule{&open_members};

}  // namespace
}  // namespace millrace::ps

extern "C" const char* millrace_module(const void** functions) {
  *functions = &millrace::ps::kModule;
  return millrace::build_stamp();
}
