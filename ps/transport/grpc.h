#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "framework/base/status.h"
#include "io/job_key.h"
#include "ps/transport/codec.h"
#include "ps/transport/endpoint.h"
#include "ps/transport/transport.h"

namespace millrace::ps {

class Metrics;

/// PEM files of one process for mutual TLS. Every peer needs a certificate of the same authority.
///
/// The peer's certificate says what it is allowed to do, by URIs in the subject alternative names:
/// millrace://role/trainer allows everything except to stop servers and to save,
/// millrace://role/operator allows these, millrace://role/pserver allows to be a server. One
/// certificate may have several of them. With one or more millrace://trainer/<number> the calls of
/// a trainer must have one of these numbers.
struct TlsFiles {
  std::string authority;    ///< certificates that peers must be signed by
  std::string certificate;  ///< of this process, including intermediate certificates
  std::string key;          ///< private key of the certificate
  /// Name in the servers' certificates, if it is not the host of their endpoints.
  std::string server_name;
};

/// Options of calls by gRPC. The defaults suit a job on one machine or in one rack.
struct GrpcOptions {
  std::optional<TlsFiles> tls;   ///< absent: neither encryption nor authentication
  bool insecure_listen = false;  ///< listen beyond loopback without TLS
  /// Connections by TCP begin with a proof that both sides have this key; a server with a key
  /// refuses callers without. Null: no proof. Not together with TLS, nor for the gRPC transport.
  std::shared_ptr<const io::JobKey> job_key = nullptr;
  /// Maximum bytes of values in one message.
  uint64_t max_message_bytes = kDefaultMaxPayloadBytes;
  /// How long a client whose connection broke waits for the server to return, limited by the
  /// deadline of the call. The first connection may take until the deadline.
  std::chrono::milliseconds reconnect_timeout{30000};
  /// Limits the first connection by reconnect_timeout, too; for callers that may find the server at
  /// another address.
  bool short_first_connect = false;
  /// A silent connection is probed after keepalive_time, and closed if there is no response within
  /// keepalive_timeout.
  std::chrono::milliseconds keepalive_time{10000};
  std::chrono::milliseconds keepalive_timeout{5000};

  /// The following options are for servers.
  int max_streams_per_connection = 64;
  int max_handler_threads = 1024;  ///< concurrent calls; a call in a barrier occupies a thread
  /// Memory for bytes that have arrived but have not been read yet, for all connections together.
  uint64_t memory_quota_bytes = uint64_t{1} << 30U;
  /// Limit for the bytes of values of all calls of one listener that are being received or handled.
  uint64_t max_bytes_in_flight = uint64_t{32} << 30U;
  /// Limit for one trainer, within max_bytes_in_flight.
  uint64_t max_bytes_per_peer = uint64_t{16} << 30U;
  /// Limits for callers that the handler does not know (Handler::knows()), apart from those of the
  /// job: connections (gRPC: streams) from which a call is awaited, and as many whose call is
  /// handled; bytes of all their calls. The oldest of too many connections is closed.
  int max_unknown_connections = 64;
  uint64_t max_unknown_bytes = uint64_t{16} << 20U;
  std::chrono::milliseconds handshake_timeout{5000};  ///< until the peer is known
  std::chrono::milliseconds idle_timeout{600000};     ///< a known peer's connection without calls
  std::chrono::milliseconds stall_timeout{30000};     ///< a call that neither sends nor receives
  /// A peer that transfers less, on average over a message of more than stall_timeout, is dropped.
  uint64_t min_bytes_per_second = uint64_t{4} << 10U;

  /// Suppresses gRPC's log on standard error, in the whole process.
  bool quiet_library = true;

  /// Counts calls and bytes; may be null, else must outlive the transport.
  Metrics* metrics = nullptr;
};

/// Fails if processes of other machines could call without authentication and this was not allowed
/// explicitly. Errors: kInvalidArgument; kDistributed for a name that cannot be resolved.
Status check_may_listen(const Endpoint& endpoint, const GrpcOptions& options);

/// Creates a transport for calls by gRPC; endpoints are host:port. Port 0 chooses a free port.
/// Listening on other addresses than loopback requires TLS or insecure_listen. A port in use is an
/// error immediately. When a listener is destroyed, it sends pending replies, ends waiting calls,
/// and returns when their handlers have returned.
///
/// The code is in the module "grpc" (framework/base/module.h), which this call loads.
/// Errors: those of load_module(); of reading the PEM files; kInvalidArgument for options out of
/// range.
/// Thread-safety: the transport and all objects that it creates are thread-safe.
StatusOr<std::unique_ptr<Transport>> make_grpc_transport(const GrpcOptions& options);

}  // namespace millrace::ps
