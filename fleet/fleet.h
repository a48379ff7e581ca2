#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "executor/executor.h"
#include "fleet/downpour/downpour_job.h"
#include "fleet/job/fleet_job.h"
#include "fleet/roles/role_maker.h"
#include "fleet/roles/wait_servers.h"
#include "fleet/runtime/fleet_server.h"
#include "fleet/runtime/fleet_worker.h"
#include "fleet/runtime/heter_worker.h"
#include "fleet/saving/fleet_saver.h"
#include "framework/base/status.h"
#include "framework/program.h"
#include "ops/minimize/options.h"
#include "ops/registry.h"
#include "ps/transport/transport.h"

namespace millrace::fleet {

/// One process of a parameter-server job, with the calls of the original's fleet object. Unlike
/// that, it is an ordinary object: one process may have several.
///
///   worker: init, distributed_optimizer, minimize, init_worker, step ..., stop_worker
///   server and heter worker: init, distributed_optimizer, minimize, init_server, run_server
///
/// Heter workers run the ops with an op_device other than a CPU for the workers. Calls in another
/// order, or of the other role, return kInvalidArgument naming both. Not
/// thread-safe except for stop_server(). Source: spec/fleet.md sections 1, 4 and 12.
class Fleet {
 public:
  /// How the workers of a job that averages dense gradients by all-reduce begin.
  struct GroupStart {
    std::shared_ptr<executor::Rings> rings;  ///< all workers, in the order of their numbers
    /// What save_persistables() has written, on this machine; the servers must have loaded the
    /// same. The first worker reads the dense half, which the others take from it. Empty: a new
    /// job.
    std::string folder;
  };

  Fleet() = default;
  Fleet(const Fleet&) = delete;
  Fleet& operator=(const Fleet&) = delete;
  ~Fleet();

  /// Sets the role of this process.
  Status init(RoleMaker role);
  /// Sets the role from the environment variables of PaddleCloud. Errors: those of
  /// role_from_environment().
  Status init_from_environment(const EnvironmentReader& read);

  /// Settings of the environment and, after minimize(), of the strategy that are never read; one
  /// line each.
  [[nodiscard]] std::vector<std::string> remarks() const;

  // ---- the role of this process; errors: not initialized
  [[nodiscard]] StatusOr<RoleMaker> role() const;
  [[nodiscard]] StatusOr<bool> is_worker() const;
  [[nodiscard]] StatusOr<bool> is_server() const;
  [[nodiscard]] StatusOr<bool> is_heter_worker() const;
  [[nodiscard]] StatusOr<bool> is_first_worker() const;
  [[nodiscard]] StatusOr<int> worker_index() const;
  [[nodiscard]] StatusOr<int> worker_num() const;
  [[nodiscard]] StatusOr<int> server_index() const;
  [[nodiscard]] StatusOr<int> server_num() const;
  [[nodiscard]] StatusOr<std::vector<std::string>> worker_endpoints() const;
  [[nodiscard]] StatusOr<std::vector<std::string>> server_endpoints() const;
  /// This worker's share of a list of files: consecutive files in order; the first n mod workers
  /// shares are one larger.
  [[nodiscard]] StatusOr<std::vector<std::string>> split_files(
      const std::vector<std::string>& files) const;

  /// Sets how the job trains. Errors: called before init(); a strategy without a mode.
  Status distributed_optimizer(MinimizeOptions optimizer, DistributedStrategy strategy);
  /// Sets that the job is one of DownpourSGD, whose tables do all updates (DownpourJob). Errors:
  /// called before init().
  Status distributed_optimizer(DownpourOptions options);
  /// Builds the training program and this process's programs from the forward ones, which are not
  /// changed. Errors: called before distributed_optimizer(); those of ops::minimize(), FleetJob and
  /// DownpourJob.
  Status minimize(const ops::OpRegistry& registry, const Program& main, const Program& startup,
                  const std::string& loss);
  /// Names vars, besides the loss, that heter workers compute and steps fetch. Call it before
  /// minimize(), in all processes.
  void fetch_from_heter_workers(std::vector<std::string> names) {
    heter_returned_ = std::move(names);
  }
  /// Lets workers keep the dense parameters and average their gradients by all-reduce
  /// (JobSpec::all_reduces_dense). Call it before minimize(), in all processes.
  void all_reduce_dense(bool wanted) { all_reduces_dense_ = wanted; }
  /// This process's programs and descriptions; null before minimize(), and in heter workers.
  [[nodiscard]] const RoleOutput* programs() const { return output_ ? &*output_ : nullptr; }
  /// The job; null before minimize().
  [[nodiscard]] const FleetJob* job() const {
    if (downpour_job_) return &downpour_job_->job();
    return job_ ? &*job_ : nullptr;
  }
  /// What a DownpourSGD job describes beside its tables; null before minimize(), and in other jobs.
  [[nodiscard]] const DownpourInfo* downpour_info() const {
    return downpour_job_ ? &downpour_job_->info() : nullptr;
  }

  /// Creates the tables; in a heter worker only the worker itself. Errors: called before
  /// minimize(); not a server or heter worker; those of FleetServer and HeterWorker.
  /// \param service  deadlines and other settings of the server. kUnimplemented for those that
  ///                 check_hybrid_service() refuses
  Status init_server(const ServerTableOptions& options = {}, ps::ServerOptions service = {});
  /// The same with tables that a job has saved (save_persistables()): the rows of embeddings and,
  /// if no names are given, the dense parameters, with which workers then start.
  /// \param folder  path of the folder on this process's machine
  /// \param tables  names of embeddings; empty: all tables
  /// Errors: those of FleetServer::load().
  Status init_server_from(const std::string& folder, const std::vector<std::string>& tables = {},
                          const ServerTableOptions& options = {}, ps::ServerOptions service = {});
  /// Serves, or runs ops for workers, until all workers have stopped. Errors: called before
  /// init_server(); those of listening.
  Status run_server(ps::Transport& transport);
  /// Ends run_server(). Thread-safety: any thread, during the lifetime of the object.
  void stop_server();

  /// Waits for the servers (a_sync_configs.launch_barrier), sends the initial parameters to them or
  /// receives them, and starts sending gradients. Errors: called before minimize(); not a worker; a
  /// second call; kDistributed.
  /// \param wait    null: do not wait for servers, for transports other than TCP
  /// \param client  deadlines and other settings of calls; the worker's number is set by this call
  /// \param group   needed where all_reduce_dense() is set, otherwise kInvalidArgument
  Status init_worker(std::shared_ptr<ps::Transport> transport, const WaitOptions* wait = nullptr,
                     const ps::ClientOptions& client = {}, const GroupStart* group = nullptr);
  /// Runs one training step. Errors: called before init_worker(); those of the program and the
  /// servers.
  Status step(const executor::NamedValues& feeds, const std::vector<std::string>& fetches,
              std::vector<Value>& results);
  /// The step from which this worker trains, after init_worker(): FleetWorker::first_step().
  [[nodiscard]] int64_t first_step() const {
    return worker_ == nullptr ? 0 : worker_->first_step();
  }
  /// The step that step() runs next. One that ends with an error counts as not done.
  [[nodiscard]] int64_t next_step() const { return worker_ == nullptr ? 0 : worker_->next_step(); }
  /// True after an error of step(), or of another call to servers, that go_back() fixes: a server
  /// of a synchronous job was started again with an older snapshot.
  [[nodiscard]] bool must_go_back() const { return worker_ != nullptr && worker_->must_go_back(); }
  /// Goes back to the step of the servers' snapshots, which next_step() then returns: feed from
  /// that step on. Errors: called before init_worker(); those of FleetWorker::go_back().
  Status go_back();
  /// Sends what waits and reports to the servers that this worker is done. Errors: called before
  /// init_worker().
  Status stop_worker();
  /// The worker, which gives access to its scope and communicator; null before init_worker().
  [[nodiscard]] FleetWorker* worker() { return worker_.get(); }

  /// Waits for all workers. Errors: called before init_worker(); kDistributed at the deadline.
  Status barrier_worker();
  /// Ends training: FleetWorker::wait_for_all(). Errors: called before init_worker(); kDistributed.
  Status wait_for_all();
  /// Saves the results of the job, for load_model() and init_server_from(). The first worker saves;
  /// the others return immediately. No worker may train meanwhile (barrier_worker()). Errors:
  /// called before init_worker(); those of save_worker_persistables().
  Status save_persistables(const FleetSaveTarget& to);
  /// Saves the part of the program that computes the fetches, under the same conditions; the model
  /// runs without servers. Errors: called before init_worker(); those of save_worker_model().
  Status save_inference_model(const FleetSaveTarget& to, const std::vector<std::string>& feeds,
                              const std::vector<std::string>& fetches);
  /// Loads what save_persistables() has written; all workers must call it. Errors: called before
  /// init_worker(); those of load_worker_persistables().
  Status load_model(const FleetSaveTarget& from);

  /// Ends a day of all sparse tables: the first worker requests it, between two barriers of all
  /// workers. As in the original, tables have no threshold argument. Errors: called before
  /// init_worker().
  Status shrink();

 private:
  Status need_role(const char* call) const;
  Status need_programs(const char* call, bool server) const;
  Status need_worker(const char* call) const;
  [[nodiscard]] JobSpec job_spec() const;
  Status minimize_downpour(const ops::OpRegistry& registry, const Program& main,
                           const Program& startup, const std::string& loss);
  [[nodiscard]] WorkerSetup worker_setup() const;
  Status init_heter_worker(ps::ServerOptions service);
  /// Servers and heter workers, for which a worker waits.
  [[nodiscard]] std::vector<std::string> peers_of_worker() const;

  EnvironmentReader environment_ = [](const std::string&) { return std::nullopt; };
  std::optional<RoleMaker> role_;
  std::optional<MinimizeOptions> optimizer_;
  std::optional<DownpourOptions> downpour_;  ///< of a DownpourSGD job, which has no optimizer_
  DistributedStrategy strategy_;
  std::unique_ptr<Program> main_;     ///< the training program, which job_ refers to
  std::unique_ptr<Program> startup_;  ///< likewise
  std::string scheduled_rate_;
  std::optional<FleetJob> job_;
  std::optional<DownpourJob> downpour_job_;  ///< in place of job_
  std::optional<RoleOutput> output_;
  std::vector<std::string> remarks_;  ///< remarks on the role
  std::unique_ptr<FleetServer> server_;
  std::unique_ptr<FleetWorker> worker_;
  std::vector<std::string> heter_returned_;
  bool all_reduces_dense_ = false;
  std::unique_ptr<HeterWorker> heter_worker_;
};

}  // namespace millrace::fleet
