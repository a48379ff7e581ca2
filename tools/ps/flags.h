#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "jobs/ps/connection.h"
#include "jobs/ps/server.h"
#include "jobs/ps/trainer.h"
#include "tools/common/tool.h"

namespace millrace::tools {

/// Options of programs that train through parameter servers.
struct PsFlags {
  std::string role;        ///< trainer, pserver, auto; empty: neither
  std::string cluster;     ///< inproc: all roles in this process
  std::string transpiled;  ///< output folder of transpile-program
  int trainer_id = 0;
  int heter_id = 0;
  std::string stats;     ///< file for statistics of a trainer (json); empty: none
  std::string report;    ///< file for the page about a cluster in one process; empty: none
  std::string endpoint;  ///< where a server listens; empty: the endpoint in its program
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
  std::string job_key;  ///< file with the key of the job; empty: that of launch, if any
  bool insecure_listen = false;
  std::vector<std::string> etcd;  ///< members of the etcd cluster where servers are registered
  int64_t etcd_lease_s = 5;
  std::string advertise;  ///< address that a server registers, if it is not the one it listens at
  std::string transport = "auto";  ///< grpc, tcp, auto
  std::string metrics;             ///< [127.0.0.1:]PORT of servers; empty: none
  std::string trace;               ///< file for a Chrome trace of this server; empty: none
  std::string trace_name;          ///< number or endpoint that identifies it in the trace
  std::string snapshot_dir;        ///< of servers
  int64_t snapshot_every = 0;
  int64_t snapshot_interval_ms = 0;
  bool snapshot_durable = false;
  int64_t reconnect_timeout_ms = 30'000;
  int64_t max_message_bytes = ps::kDefaultMaxPayloadBytes;
  double grace_s = 30;     ///< of servers: from SIGTERM until the process ends at the latest
  std::string kill_point;  ///< NAME[:COUNT]: where the process kills itself; empty: never
};

/// Options of run-program for trainers and clusters.
void add_trainer_flags(Tool& tool, PsFlags& flags);
/// Options that trainers and servers have.
void add_job_flags(Tool& tool, PsFlags& flags);
/// Options that only servers have.
void add_server_flags(Tool& tool, PsFlags& flags);

/// What the flags say about connections. Errors: kUsage for an incomplete set of TLS files, and for
/// --advertise without --etcd; those of read_job_key().
StatusOr<jobs::ConnectionOptions> connection_options(const PsFlags& flags);
/// What they say about calls of a trainer to its servers. Errors: kInvalidArgument for an unknown
/// --kill-point.
StatusOr<ps::ClientOptions> client_options(const PsFlags& flags);
/// Settings of a trainer from the flags and the environment, without those of several devices.
/// Errors: those of client_options() and jobs::read_communicator_settings().
StatusOr<jobs::Trainer::Settings> trainer_settings(const Tool& tool, const PsFlags& flags);
/// Settings of a server. \param files_root  folder for the files of checkpoint requests; may be
/// empty
/// Errors: kInvalidArgument for an unknown --kill-point.
StatusOr<jobs::Server::Settings> server_settings(const Tool& tool, const PsFlags& flags,
                                                 const std::string& files_root);

}  // namespace millrace::tools
