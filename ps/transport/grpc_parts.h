#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "framework/base/status.h"
#include "ps/transport/codec.h"
#include "ps/transport/grpc.h"
#include "ps/transport/grpc_engine.h"
#include "ps/transport/transport.h"

namespace grpc {
class AuthContext;
class ByteBuffer;
class ChannelCredentials;
class ServerCredentials;
}  // namespace grpc

/// What the sources of the module "grpc" share; for them only.
namespace millrace::ps {

/// The one method of the service.
inline constexpr const char* kCallMethod = "/millrace.PsService/Call";
/// A message is cut into gRPC messages of at most so many bytes, and its head.
inline constexpr size_t kChunkBytes = size_t{1} << 20U;
/// A server ends a stream on which nothing has happened since its last call for so long, because it
/// takes a thread.
inline constexpr std::chrono::milliseconds kStreamRest{5000};
/// A client uses a stream again within so long. The difference is what the first part of a message
/// may take on its way, since a server sees parts only when they are whole.
inline constexpr std::chrono::milliseconds kStreamUse{1000};

/// Cuts a message into gRPC messages whose slices point into its memory.
class MessageCutter {
 public:
  /// \param keep  held as long as gRPC holds any of the slices
  MessageCutter(const OutgoingMessage& message, std::shared_ptr<void> keep);

  /// The next part; not when at_end().
  void next(grpc::ByteBuffer& part);
  [[nodiscard]] bool at_end() const { return left_ == 0; }

 private:
  const OutgoingMessage& message_;
  std::shared_ptr<void> keep_;
  uint64_t left_;
  bool head_done_ = false;
  size_t piece_ = 0;
  size_t offset_ = 0;
};

/// Hands the bytes of a part to a reader.
Status feed(MessageReader& reader, const grpc::ByteBuffer& part);

/// Encrypted where the options say so.
struct GrpcCredentials {
  std::shared_ptr<grpc::ChannelCredentials> client;
  std::shared_ptr<grpc::ServerCredentials> server;
};
StatusOr<GrpcCredentials> make_credentials(const std::optional<TlsFiles>& tls);

/// Fails if the peer's certificate does not let it make the call. Errors: kInvalidArgument.
Status check_caller(const grpc::AuthContext& peer, Method method);
/// Fails if the peer's certificate is none of a server. Errors: kDistributed.
Status check_server(const grpc::AuthContext& peer);

/// Everything that a transport shares with what it makes.
struct GrpcShared {
  GrpcOptions options;
  GrpcCredentials credentials;
  BufferPool pool;
};

/// Errors: as make_grpc_transport().
StatusOr<std::shared_ptr<GrpcShared>> make_grpc_shared(const GrpcOptions& options);

StatusOr<std::unique_ptr<GrpcGuests>> make_guests(const GrpcOptions& options, Handler& handler);

std::shared_ptr<Channel> make_grpc_channel(std::shared_ptr<GrpcShared> shared,
                                           const std::string& endpoint);
StatusOr<std::unique_ptr<Listener>> make_grpc_listener(std::shared_ptr<GrpcShared> shared,
                                                       const std::string& endpoint,
                                                       Handler& handler);

}  // namespace millrace::ps
