#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ps/metrics/metrics.h"
#include "ps/transport/transport.h"
#include "tools/common/tool.h"

namespace millrace::tools {

/// Options of programs that train through parameter servers.
struct PsFlags {
  std::string role;        ///< trainer, pserver, auto; empty: neither
  std::string cluster;     ///< inproc: all roles in this process
  std::string transpiled;  ///< output folder of transpile-program
  int trainer_id = 0;
  std::string stats;     ///< json of what a trainer has done and where its time went
  std::string report;    ///< page about a cluster in one process
  std::string endpoint;  ///< where a server listens instead of at the place its program names
  std::string slices;    ///< slices.json; default: in the folder above the program's
  std::string job;
  int64_t deadline_ms = 180'000;
  int64_t silence_timeout_ms = 15'000;
  int64_t start_timeout_ms = 180'000;
  bool elastic = false;
  double dc_lambda = 1;
  std::string tls_dir;  ///< folder with ca.pem, cert.pem and key.pem
  std::string tls_ca;   ///< PEM files of mutual TLS
  std::string tls_cert;
  std::string tls_key;
  bool insecure_listen = false;
  std::vector<std::string> etcd;  ///< members of the cluster that knows where servers are
  int64_t etcd_lease_s = 5;
  std::string advertise;  ///< address that a server announces instead of the one it listens at
  std::string transport = "auto";  ///< grpc, tcp, auto
  std::string metrics;             ///< [127.0.0.1:]PORT of servers; empty: none
  std::string trace;               ///< file for a Chrome trace of this server; empty: none
  std::string trace_name;          ///< number or endpoint by which the trace calls it
  std::string snapshot_dir;        ///< of servers
  int64_t snapshot_every = 0;
  int64_t snapshot_interval_ms = 0;
  bool snapshot_durable = false;
  int64_t reconnect_timeout_ms = 30'000;
  std::string kill_point;  ///< NAME[:COUNT] where the process ends itself; empty: nowhere
};

/// Options of run-program for trainers and clusters.
void add_trainer_flags(Tool& tool, PsFlags& flags);
/// Options that servers have, too.
void add_job_flags(Tool& tool, PsFlags& flags);
/// Options of servers alone.
void add_server_flags(Tool& tool, PsFlags& flags);

/// Calls between processes, as the flags say.
/// \param metrics  counts what a server does; may be null, else outlives the transport
/// Errors: kUsage for TLS files that are not all named; those of make_wire_transport() and
/// make_etcd_directory().
StatusOr<std::shared_ptr<ps::Transport>> open_transport(const Tool& tool, const PsFlags& flags,
                                                        ps::Metrics* metrics = nullptr);

}  // namespace millrace::tools
