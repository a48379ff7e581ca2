#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "api/connection.h"
#include "api/dataset.h"
#include "api/scope.h"
#include "executor/collective/rings.h"
#include "executor/executor.h"
#include "framework/base/log.h"
#include "framework/tensor/scope.h"
#include "io/job_key.h"
#include "jobs/run/epoch.h"
#include "ps/client/client.h"
#include "ps/server/server_core.h"
#include "ps/transport/inproc.h"

/// What is inside the handles of this folder. Not installed.
namespace millrace::api {

/// What is inside a Scope; executors keep it alive.
struct Scope::State {
  millrace::Scope vars;  ///< persistable vars; has no parent
};

/// What is inside a Connection.
struct Connection::State {
  std::shared_ptr<ps::Transport> transport;
  std::shared_ptr<ps::InprocTransport> inproc;  ///< the transport; null between processes
  std::string job;
  std::chrono::milliseconds reconnect_timeout{0};  ///< of calls
  bool has_directory = false;                      ///< the transport knows where servers listen
  bool encrypts = false;                           ///< by TLS
  std::shared_ptr<const io::JobKey> key;           ///< of the job; null: none

  std::mutex grouping;
  /// In one process: what connects the workers of a hybrid job, by worker; null: taken. Guarded by
  /// `grouping`, and so is `users`.
  std::vector<std::unique_ptr<executor::CollectiveGroup>> groups;
  std::vector<std::weak_ptr<void>> users;  ///< of the groups that are taken, by worker
};

/// What is inside a Ranks.
struct Ranks::State {
  std::shared_ptr<executor::Rings> rings;      ///< null: a process without others
  executor::CollectiveGroup* group = nullptr;  ///< all ranks, of the rings
};

/// Access of the sources of this folder to what handles refer to.
struct Internals {
  /// The vars of a scope. They live as long as the result of state().
  static millrace::Scope& vars(const Scope& scope) { return scope.state_->vars; }
  /// What keeps the vars of a scope alive.
  static std::shared_ptr<void> state(const Scope& scope) { return scope.state_; }
  /// What is inside a data set.
  static Dataset::Parts& parts(Dataset& dataset) { return *dataset.parts_; }
  static Connection::State& state(const Connection& connection) { return *connection.state_; }
  /// The groups, and all ranks; null for a process without others, and without ranks.
  static std::shared_ptr<executor::Rings> rings(const std::optional<Ranks>& ranks) {
    return ranks ? ranks->state_->rings : nullptr;
  }
  static executor::CollectiveGroup* group(const std::optional<Ranks>& ranks) {
    return ranks ? ranks->state_->group : nullptr;
  }
  /// Calls of a trainer by a connection. \param deadline  longest time of one call
  static ps::ClientOptions client(const Connection& connection, int trainer,
                                  std::chrono::milliseconds deadline,
                                  std::chrono::milliseconds heartbeat) {
    ps::ClientOptions options;
    options.job = connection.state_->job;
    options.trainer = trainer;
    options.deadline = deadline;
    options.heartbeat = heartbeat;
    options.reconnect_timeout = connection.state_->reconnect_timeout;
    return options;
  }
};

/// Runs one batch of a data set. \param worker  from 0  \param batch  its number, from 0
/// \param results  receives the fetches in their order; their memory is reused
using RunOneBatch =
    std::function<Status(int worker, int64_t batch, const executor::NamedValues& feeds,
                         const std::vector<std::string>& fetches, std::vector<Value>& results)>;
/// The same for what has neither workers nor numbers.
using RunFeeds =
    std::function<Status(const executor::NamedValues& feeds,
                         const std::vector<std::string>& fetches, std::vector<Value>& results)>;
/// Makes one pass over a data set. Errors: kInvalidArgument naming the option; kUnimplemented for
/// several threads; those of the readers, with files; those of `run`, with the batch.
StatusOr<EpochResult> run_over(Dataset& dataset, const EpochOptions& options, const RunFeeds& run);
StatusOr<EpochResult> run_over(Dataset& dataset, const EpochOptions& options,
                               const RunOneBatch& run, const jobs::EpochWorkers& workers);

/// The same for ranks that run the program together, and so need the same number of batches; an
/// error breaks their group. \param group  null: there are none
/// Errors: also kInvalidData, on all ranks, for different numbers; kUnimplemented for a data set
/// that is not in memory; kDistributed.
StatusOr<EpochResult> run_over(Dataset& dataset, const EpochOptions& options,
                               executor::CollectiveGroup* group, const RunFeeds& run);
/// Breaks a group, if there is one, by an error, so that the other ranks learn of it.
/// \returns the status
Status tell_ranks(executor::CollectiveGroup* group, Status status);

/// The var that the first optimizer op of a program updates; empty if it has none.
std::string updated_var(const Program& program);
/// Errors: kInvalidArgument naming the var if it is not empty.
Status check_infers(const std::string& updated_var);

/// A value that holds some rows of a matrix. Errors: kInvalidArgument for other values.
StatusOr<Rows> rows_of(const std::string& name, const Value& value);

struct ServerOptions;

/// Errors: kInvalidArgument naming the option.
Status check_server_options(const ServerOptions& options);
/// The same settings for the server itself, with the job of the connection.
ps::ServerOptions service_of(const ServerOptions& options, const Connection& connection);

struct FleetRole;
struct FleetWorkerOptions;

/// The first of these options that says how workers meet and is not the default; null: none is.
const char* given_meeting_option(const FleetWorkerOptions& options);
/// Connects the workers of a job that averages dense gradients by all-reduce.
/// Errors: kInvalidArgument naming the option; kUnimplemented for engines and TLS as
/// FleetWorkerOptions says.
StatusOr<std::shared_ptr<executor::Rings>> rings_of_workers(const Connection& connection,
                                                            const FleetRole& role,
                                                            const FleetWorkerOptions& options);
/// The lines with a prefix for errors and warnings; drops them if there is no receiver.
LogSink sink_of(Log log);

}  // namespace millrace::api
