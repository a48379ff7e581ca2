#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "framework/base/log.h"
#include "framework/base/status.h"
#include "io/job_key.h"
#include "ps/discovery/directory.h"
#include "ps/metrics/metrics.h"
#include "ps/transport/transport.h"
#include "ps/transport/wire.h"

namespace millrace::jobs {

/// Where the servers of a job are registered: an etcd cluster.
struct Discovery {
  std::vector<std::string> members;  ///< host:port each; empty: servers are not registered
  std::chrono::seconds lease{5};     ///< how long a dead server stays registered
  std::optional<ps::TlsFiles> tls;
  std::string job;  ///< name of the job; empty: "default"
};

/// Opens the directory of the job; a lost registration is logged. Errors: those of
/// ps::make_etcd_directory().
StatusOr<std::shared_ptr<ps::Directory>> open_directory(const Discovery& discovery,
                                                        const LogSink& log);

/// How the processes of a job connect to each other.
struct ConnectionOptions {
  std::string job;  ///< name of the job
  ps::WireKind kind = ps::WireKind::kAuto;
  std::optional<ps::TlsFiles> tls;  ///< absent: without TLS
  /// Key of the job, without TLS; null: none.
  std::shared_ptr<const io::JobKey> job_key = nullptr;
  bool insecure_listen = false;  ///< without TLS: listen at other addresses than loopback
  std::chrono::milliseconds reconnect_timeout{30'000};  ///< how long to retry a broken connection
  uint64_t max_message_bytes = ps::kDefaultMaxPayloadBytes;  ///< of values in one message
  std::vector<std::string> etcd;                             ///< Discovery::members
  std::chrono::seconds etcd_lease{5};                        ///< Discovery::lease
  std::string endpoint;   ///< of a server: where it listens; empty: at the endpoint of its program
  std::string advertise;  ///< of a server: address that it registers; empty: the endpoint
};

/// Opens the transport for calls between processes.
/// \param metrics  counts what a server does; may be null, else outlives the transport
/// Errors: those of ps::make_wire_transport() and open_directory().
StatusOr<std::shared_ptr<ps::Transport>> open_transport(const ConnectionOptions& options,
                                                        const LogSink& log,
                                                        ps::Metrics* metrics = nullptr);

}  // namespace millrace::jobs
