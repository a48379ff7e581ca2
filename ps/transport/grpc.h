#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "framework/base/status.h"
#include "ps/transport/codec.h"
#include "ps/transport/endpoint.h"
#include "ps/transport/transport.h"

namespace millrace::ps {

class Metrics;

/// PEM files of one process for mutual TLS. Every peer needs a certificate of the same authority.
///
/// What a peer may do stands in its certificate, as URIs among the alternative names of the
/// subject: millrace://role/trainer may do all but stop servers and save, millrace://role/operator
/// may do these, millrace://role/pserver may be a server. One certificate may have several.
struct TlsFiles {
  std::string authority;    ///< certificates that peers must be signed by
  std::string certificate;  ///< of this process, with those between it and the authority
  std::string key;          ///< of the certificate
  /// Name that servers' certificates carry where it is not the host of their endpoints.
  std::string server_name;
};

/// How calls travel by gRPC. The defaults suit a job on one machine or one rack.
struct GrpcOptions {
  std::optional<TlsFiles> tls;   ///< absent: no encryption, and nobody is who he says
  bool insecure_listen = false;  ///< listen beyond loopback without TLS
  /// Most bytes of values in one message.
  uint64_t max_message_bytes = kDefaultMaxPayloadBytes;
  /// A client whose connection broke waits so long for the server to come back, at most until the
  /// deadline of the call. The first connection may take until the deadline.
  std::chrono::milliseconds reconnect_timeout{30000};
  /// For callers that know where else a server may be: the first connection has no more time.
  bool hurried_first = false;
  /// A silent connection is asked for a sign of life after the first, and given up after the
  /// second without one.
  std::chrono::milliseconds keepalive_time{10000};
  std::chrono::milliseconds keepalive_timeout{5000};

  /// What follows counts for servers.
  int max_streams_per_connection = 64;
  int max_handler_threads = 1024;  ///< calls at once; those in a barrier take one each
  /// Memory for bytes that have arrived and were not read yet, all connections together.
  uint64_t memory_quota_bytes = uint64_t{1} << 30U;
  /// Bytes of values in the calls of one listener that are being received or handled.
  uint64_t max_bytes_under_way = uint64_t{32} << 30U;
  std::chrono::milliseconds handshake_timeout{10000};  ///< until a peer has said what it speaks
  std::chrono::milliseconds idle_timeout{600000};      ///< a connection without calls
  std::chrono::milliseconds stall_timeout{30000};      ///< a call that neither sends nor takes

  /// Keeps gRPC's own words away from standard error, in the whole process.
  bool quiet_library = true;

  /// Counts calls and bytes there; may be null, else outlives the transport.
  Metrics* metrics = nullptr;
};

/// Fails if others than processes of this machine could call without showing who they are, and
/// nobody has allowed that. Errors: kInvalidArgument; kDistributed for a name without address.
Status check_may_listen(const Endpoint& endpoint, const GrpcOptions& options);

/// Calls by gRPC; endpoints are host:port. Port 0 takes a free one. Listening anywhere but at
/// loopback needs TLS or insecure_listen; a port that somebody has is an error at once. A listener
/// that ends lets replies under way go out, ends the calls that wait, and returns when their
/// handlers have.
/// The library stands in the module "grpc" (framework/base/module.h), which is loaded now.
/// Errors: those of load_module(); of reading the PEM files; kInvalidArgument for options out of
/// range.
/// Thread-safety: the transport and all it makes.
StatusOr<std::unique_ptr<Transport>> make_grpc_transport(const GrpcOptions& options);

}  // namespace millrace::ps
