#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "framework/base/status.h"

namespace millrace::api {

struct Internals;

/// Receives log lines ("warning: ..."), without a line end; may be called from several threads at
/// once. Empty: lines are dropped.
using Log = std::function<void(const std::string& line)>;

/// Protocol of calls between processes.
enum class WireKind {
  kAuto,  ///< with TLS gRPC, else TCP; servers then also accept gRPC on the same port
  kGrpc,  ///< needs the module `grpc` next to the library
  kTcp,
};

/// PEM files of one process for mutual TLS; peers need certificates of the same authority.
struct TlsFiles {
  std::string authority;         ///< certificates that peers must be signed by
  std::string certificate;       ///< of this process, including intermediate certificates
  std::string key;               ///< private key of the certificate
  std::string server_name = {};  ///< in the servers' certificates; empty: host of their endpoints
};

/// How the processes of a job connect to each other. The tools have flags of the same names.
struct ConnectionOptions {
  std::string job = {};  ///< name of the job; calls of other jobs are refused
  WireKind kind = WireKind::kAuto;
  std::optional<TlsFiles> tls = {};  ///< absent: neither encryption nor certificates
  /// File with a secret of the job, which both sides of a TCP connection prove to know; only its
  /// owner may read it. Empty: no proof. Not together with TLS.
  std::string job_key_file = {};
  bool insecure_listen = false;  ///< without TLS: servers may listen beyond loopback
  std::chrono::milliseconds reconnect_timeout{30'000};  ///< how long to retry a broken connection
  uint64_t max_message_bytes = uint64_t{4} << 30U;      ///< of values in one message
  /// Members of an etcd cluster ("host:port"), where servers register; empty: none. Needs the
  /// module `etcd` next to the library.
  std::vector<std::string> etcd = {};
  std::chrono::seconds etcd_lease{5};  ///< how long a dead server stays registered
  std::string endpoint = {};   ///< with etcd: where a server listens; empty: as its program says
  std::string advertise = {};  ///< with etcd: address that a server registers; empty: endpoint
  Log log = {};                ///< lost registrations and the like
};

/// Connects trainers and servers: of one process, or of several by a network.
///
/// A handle: copies are the same connection; servers and trainers that were opened with it keep it.
/// Thread-safety: any thread.
class Connection {
 public:
  /// For trainers and servers of this process that use copies of the result. Endpoints are names.
  static Connection in_process(const std::string& job = {});
  /// Errors: kInvalidArgument naming options that exclude each other; kNotFound and kIo for a
  /// module that cannot be loaded and for files that cannot be read; kInvalidData for a bad key
  /// file; kDistributed if no member of the etcd cluster responds.
  static StatusOr<Connection> open(const ConnectionOptions& options = {});
  Connection(const Connection&);
  Connection& operator=(const Connection&);
  ~Connection();

  /// Name of the job.
  [[nodiscard]] const std::string& job() const;
  /// In one process: calls that wait for a server that was never opened end with kDistributed, and
  /// all later calls fail. No effect on connections between processes.
  void close();

 private:
  friend struct Internals;
  struct State;
  explicit Connection(std::shared_ptr<State> state);
  std::shared_ptr<State> state_;
};

/// How the ranks of a job of collective training find each other: as those of `run-program`, which
/// has flags of similar names. What is not given is read from the environment that launch, mpirun,
/// Slurm or torchrun set.
struct RankOptions {
  int rank = -1;                            ///< of this process; -1: that of the environment
  std::vector<std::string> endpoints = {};  ///< "host:port" of all ranks, in order
  std::string engine = "auto";              ///< auto, shm, gloo, mpi or nccl (docs/processes.md)
  std::string rendezvous = {};              ///< new folder that all ranks can access; empty: none
  std::string job_key_file = {};  ///< as in ConnectionOptions; empty: that of `launch --job-key`
  std::chrono::milliseconds wait{600'000};  ///< longest wait for another rank
  std::chrono::milliseconds join{120'000};  ///< until all ranks have connected
};

/// The processes that train a program together and exchange values by its collective ops. Give it
/// to executors (ExecutorOptions::ranks, ParallelOptions::ranks).
///
/// All ranks make the same runs in the same order. An error of a run breaks the group for good:
/// later runs return it, and those of the other ranks return kDistributed naming the rank.
///
/// A handle: copies are the same group. Thread-safety: one call at a time, runs of the executors
/// included.
class Ranks {
 public:
  /// Joins the other ranks; returns when all have connected. A process without others is rank 0 of
  /// 1, whose programs with collective ops are refused. Errors: kInvalidArgument and kUsage naming
  /// the option or the variable; kDistributed for ranks that do not connect; kUnimplemented for an
  /// engine that this build lacks; kResource for a port in use.
  static StatusOr<Ranks> open(const RankOptions& options = {});
  Ranks(const Ranks&);
  Ranks& operator=(const Ranks&);
  ~Ranks();

  [[nodiscard]] int rank() const;
  [[nodiscard]] int size() const;
  /// Returns when all ranks have called it. Errors: kDistributed.
  Status barrier() const;

 private:
  friend struct Internals;
  struct State;
  explicit Ranks(std::shared_ptr<State> state);
  std::shared_ptr<State> state_;
};

}  // namespace millrace::api
