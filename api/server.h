#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "api/connection.h"
#include "api/job.h"
#include "framework/base/status.h"

namespace millrace::api {

/// Settings of a parameter server. The tool `pserver` has flags of similar names.
struct ServerOptions {
  std::string endpoint = {};  ///< where to listen; empty: at the endpoint in the program
  int threads = 1;            ///< that apply updates and read files, at least 1
  uint64_t seed = 0;          ///< of random numbers of its programs
  /// How long to wait for all trainers at the start; 0: without limit.
  std::chrono::milliseconds start_timeout{180'000};
  /// A trainer that is silent for this long counts as lost; 0: never.
  std::chrono::milliseconds silence_timeout{0};
  /// Interval of log lines that say which trainers wait for which others; 0: none.
  std::chrono::milliseconds report_interval{30'000};
  double dc_lambda = 1;         ///< strength of delay compensation (DC-ASGD)
  bool elastic = false;         ///< the job continues without a lost trainer
  std::string files_root = {};  ///< folder for the files of requests to save; empty: refused
  /// Folder for snapshots, which ServerCheckpoint reads; the newest one is loaded at the start.
  /// Empty: none are taken.
  std::string snapshot_root = {};
  int64_t snapshot_every = 0;  ///< steps between snapshots (synchronous jobs); 0: none by steps
  std::chrono::milliseconds snapshot_interval{0};  ///< time between snapshots; 0: none by time
  bool snapshot_durable = false;  ///< trainers wait until the snapshot of their step is on disk
  Log log = {};
};

/// A parameter server inside this process: one server of a job that write_job() or
/// `transpile-program` has written, with `--fleet` as well.
///
///   MILLRACE_ASSIGN_OR_RETURN(auto server, ParameterServer::open(server_files("job", 0),
///                                                                connection));
///   std::thread serving([&] { status = server.serve(); });
///
/// Movable while it does not serve. Thread-safety: one caller at a time, except for stop().
class ParameterServer {
 public:
  /// Reads the programs, runs the startup program, and loads slices or the newest snapshot.
  /// Errors: kNotFound, kInvalidProgram and kInvalidData for the files; kInvalidArgument naming the
  /// option; kUnimplemented for what this kind of job does not have.
  static StatusOr<ParameterServer> open(const RoleFiles& files, const Connection& connection,
                                        const ServerOptions& options = {});
  ParameterServer(ParameterServer&&) noexcept;
  ParameterServer& operator=(ParameterServer&&) noexcept;
  ParameterServer(const ParameterServer&) = delete;
  ParameterServer& operator=(const ParameterServer&) = delete;
  ~ParameterServer();

  /// Sets a function that receives the endpoint as soon as the server listens.
  void on_ready(std::function<void(const std::string& endpoint)> callback);
  /// Serves until all trainers have finished or stop() is called. Call it once.
  /// Errors: kDistributed for a lost trainer or one that never connected, and for a port in use;
  /// those of update ops.
  Status serve();
  /// Ends serve() after the current step, also one that starts later. Thread-safety: any thread.
  void stop();

 private:
  struct Parts;
  explicit ParameterServer(std::unique_ptr<Parts> parts);
  PartsPtr<Parts> parts_;
};

}  // namespace millrace::api
