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

/// Shared by the sources of the module "grpc"; only for them.
namespace millrace::ps {

/// The one method of the service.
inline constexpr const char* kCallMethod = "/millrace.PsService/Call";
/// Maximum size of the gRPC messages into which the bytes after the head are split.
inline constexpr size_t kChunkBytes = size_t{1} << 20U;
/// A server closes a stream this long after its last call, because a stream occupies a thread.
inline constexpr std::chrono::milliseconds kStreamRest{5000};
/// A client reuses a stream only for this long after its last call. The difference to kStreamRest
/// allows for the transfer of the first part of a message, since a server sees only complete parts.
inline constexpr std::chrono::milliseconds kStreamUse{1000};

/// Splits a message into gRPC messages whose slices refer to its memory.
class MessageSplitter {
 public:
  /// \param keep  held as long as gRPC uses any of the slices
  MessageSplitter(const OutgoingMessage& message, std::shared_ptr<void> keep);

  /// Creates the next part; not allowed when at_end().
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

/// Passes the bytes of a part to a reader.
Status feed(MessageReader& reader, const grpc::ByteBuffer& part);

/// Credentials with encryption if the options have TLS files, else without.
struct GrpcCredentials {
  std::shared_ptr<grpc::ChannelCredentials> client;
  std::shared_ptr<grpc::ServerCredentials> server;
};
StatusOr<GrpcCredentials> make_credentials(const std::optional<TlsFiles>& tls);

/// Fails if the peer's certificate does not allow the call. Errors: kInvalidArgument.
Status check_caller(const grpc::AuthContext& peer, const Request& request);
/// Fails if the peer's certificate is not that of a server. Errors: kDistributed.
Status check_server(const grpc::AuthContext& peer);

/// State that a transport shares with the objects that it creates.
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
