#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "api/connection.h"
#include "api/server.h"
#include "executor/array.h"
#include "framework/base/status.h"
#include "ops/minimize/options.h"
#include "transpiler/distribute_config.h"

namespace millrace {
class Program;
}

namespace millrace::api {

class Dataset;
struct EpochOptions;
struct EpochResult;

/// A value of a setting, and settings by name, as users of the original write them.
using FleetValue =
    std::variant<bool, int64_t, double, std::string, std::vector<double>, std::vector<std::string>>;
using FleetConfigs = std::map<std::string, FleetValue>;

/// How a job of the fleet API trains; names, keys and defaults of the original's
/// DistributedStrategy. Fleet::remarks() lists keys that are accepted and never read.
struct FleetStrategy {
  bool a_sync = true;                ///< false: synchronous
  FleetConfigs a_sync_configs = {};  ///< k_steps, launch_barrier, ...; k_steps > 0: geo
  FleetConfigs trainer_desc_configs = {};
  FleetConfigs fs_client_param = {};
  std::map<std::string, FleetConfigs> tables = {};  ///< fleet_desc_configs by embedding
  bool use_cvm = true;      ///< false: tables with settings have no show and click
  bool adam_d2sum = false;  ///< adam of dense tables uses decaying sums of squares
  /// True: servers also run other optimizers than sgd and adam; the original refuses those.
  bool all_optimizers = false;
  /// "servers", or "all_reduce": a hybrid job (docs/fleet.md), whose workers keep the dense
  /// parameters and average their gradients by all-reduce; servers have embeddings only.
  std::string dense_gradients = "servers";
};

/// How a job of the original's first fleet trains (DistributedTranspiler, FleetTranspiler,
/// ParameterServerRuntime): its servers run optimizer blocks, as in the jobs of write_job(). The
/// functions are those of the original's StrategyFactory; the members may be changed afterwards.
class TranspilerStrategy {
 public:
  /// All workers wait for each other in every step.
  static TranspilerStrategy sync();
  /// No worker waits; gradients are sent and parameters received in the background.
  static TranspilerStrategy async();
  /// Each worker waits for its servers in every step, but not for the other workers.
  static TranspilerStrategy half_async();
  /// Workers update their own parameters and exchange the differences.
  /// \param update_frequency  steps between two exchanges, at least 1
  static TranspilerStrategy geo(int64_t update_frequency = 100);
  /// From a configuration, as FleetTranspiler::distributed_optimizer() of the original: with
  /// sync_mode false and runtime_split_send_recv false the job is half-async.
  static TranspilerStrategy from(const transpiler::DistributeTranspilerConfig& config);
  /// From a strategy, as ParameterServerRuntime of the original: a_sync and k_steps choose sync,
  /// async or geo. Errors: kInvalidArgument for settings that are no mode, and for settings of
  /// tables, which this job does not have.
  static StatusOr<TranspilerStrategy> from(const FleetStrategy& strategy);

  transpiler::DistributeTranspilerConfig config = {};  ///< the program configuration
  /// Settings of the communicator by name (TrainerRuntimeConfig): communicator_send_queue_size, ...
  std::map<std::string, std::string> communicator = {};
  /// JSON: embeddings that become typed tables of the servers (WriteJobOptions::sparse_tables);
  /// empty: none.
  std::string sparse_tables = {};

 private:
  TranspilerStrategy() = default;
};

/// How a DownpourSGD job (pslib) trains: asynchronously, with one sparse table for the distributed
/// lookup table of the program, and dense tables; their rules do all updates, so there is no
/// optimizer. Members, keys and defaults of the file of `transpile-program --downpour`
/// (docs/fleet.md); Fleet::remarks() lists settings that no rule reads.
struct DownpourStrategy {
  FleetConfigs sparse_configs = {};    ///< sparse_*, embed_sparse_*, embedx_sparse_*
  FleetConfigs dense_configs = {};     ///< dense_*
  FleetConfigs datanorm_configs = {};  ///< datanorm_*
  /// Ends of the names of parameters that are statistics of data_norm; jobs with some are refused.
  std::vector<std::string> data_norm_names = {".batch_size", ".batch_square_sum", ".batch_sum"};
  bool use_cvm = false;                      ///< rows begin with show and click
  int window = 1;                            ///< steps between exchanges; only 1 runs
  bool early = false;                        ///< tables as the first versions described them
  std::optional<double> learning_rate = {};  ///< of all tables; only with early
  /// Text of a PSParameter to start from, whose settings of tables are kept; empty: none.
  std::string fleet_desc = {};
  bool program_config_messages = false;  ///< FleetDescription::fleet_desc has tables of programs
};

/// The role of a process in a job (UserDefinedRoleMaker of the original).
struct FleetRole {
  bool is_server = false;
  int id = 0;                                      ///< within the role, from 0
  int worker_num = 1;                              ///< number of workers of the job
  std::vector<std::string> server_endpoints = {};  ///< "host:port" of all servers, in order
  std::vector<std::string> worker_endpoints = {};  ///< in place of worker_num; may be empty

  /// True for worker 0, which sends initial values and saves.
  [[nodiscard]] bool is_first_worker() const { return !is_server && id == 0; }
};

/// Settings of a server's tables.
struct FleetTableOptions {
  uint64_t seed = 0;           ///< of initial values
  std::string disk_path = {};  ///< folder for tables of class SSDSparseTable; empty: refused
};

/// Settings of a worker.
struct FleetWorkerOptions {
  /// How long to wait until servers accept TCP connections, if a_sync_configs.launch_barrier is
  /// set; absent: do not wait, for a connection within the process.
  std::optional<std::chrono::milliseconds> wait_for_servers = std::chrono::minutes(10);
  std::chrono::milliseconds deadline{180'000};  ///< of one call, waiting for workers included
  std::chrono::milliseconds heartbeat{0};       ///< interval of signs of life; 0: none

  /// A job continues from this folder of save_persistables(), which init_server() has been given as
  /// well. The first worker of a hybrid job reads it, and each worker of a job with a
  /// TranspilerStrategy, for the variables that no server has; others refuse it. Empty: a new job.
  std::string folder = {};

  // Of hybrid jobs; others refuse them. Their workers meet at the endpoint of the first worker in
  // the role, or in `rendezvous`; those of Connection::in_process() without either.

  /// "auto", "shm" (one machine) or "gloo" (TCP). With TLS "shm" only, because nothing between
  /// workers is encrypted.
  std::string engine = "auto";
  std::string rendezvous = {};  ///< new folder that all workers can access; empty: none
  /// How long to wait until all workers have connected; absent: 120 s.
  std::optional<std::chrono::milliseconds> join_deadline = {};
};

/// Where results are saved, or loaded from.
struct FleetFolder {
  std::string root;    ///< folder of the worker's files; servers use their files_root in its place
  std::string folder;  ///< below root
  bool replace = false;  ///< replace files that exist; otherwise an error (kUsage)
  /// Which rows of tables with statistics are saved, numbered as by the original: 0 all; 1 those
  /// with base_threshold whose changes since the last such save reach delta_threshold; 2 those
  /// with base_threshold; 3 all, at the end of a day. Other tables always save all rows.
  int mode = 0;
};

/// What a process of a job with typed tables needs beside its programs; `transpile-program --fleet`
/// writes the same.
struct FleetDescription {
  std::string tables;           ///< ps_desc.txt: tables, accessors and rules, in text form
  std::string runtime;          ///< runtime.json: role, mode, and what is sent and received
  std::string fleet_desc = {};  ///< DownpourSGD: the tables as the original describes them
  std::string opt_info = {};    ///< DownpourSGD: JSON of what the original tells its trainers
};

/// One process of a parameter-server job, with the calls of the original's fleet object, but as an
/// ordinary object: one process may have several.
///
///   worker: init, distributed_optimizer, minimize, init_worker, step ..., stop_worker
///   server: init, distributed_optimizer, minimize, init_server, run_server
///
/// Calls in another order or of the other role return kInvalidArgument naming both. Movable until
/// init_server() or init_worker(). Thread-safety: one call at a time, except for stop_server().
class Fleet {
 public:
  /// A process of the job of the connection; the connection must not have a directory.
  explicit Fleet(Connection connection);
  Fleet(Fleet&&) noexcept;
  Fleet& operator=(Fleet&&) noexcept;
  Fleet(const Fleet&) = delete;
  Fleet& operator=(const Fleet&) = delete;
  ~Fleet();

  /// Sets the role of this process. Errors: kInvalidArgument for an id out of range, no servers or
  /// workers, and empty or repeated endpoints.
  Status init(const FleetRole& role);
  /// Sets the role from the environment variables of PaddleCloud (PADDLE_PSERVERS_IP_PORT_LIST,
  /// TRAINING_ROLE, ...). Errors: kInvalidArgument naming the variable that is missing or wrong.
  Status init_from_environment();
  /// Sets the role by the ranks of mpirun (MPISymetricRoleMaker): even ranks are servers, odd ranks
  /// workers. All ranks call it, once; it initializes and finalizes MPI.
  /// \param host  at which this process listens as a server, at a free port; empty: 127.0.0.1 if
  ///              all ranks are on one machine, else the name of this machine
  /// Errors: kInvalidArgument without mpirun and for an odd number of ranks; kNotFound for a
  /// library without its module `mpi`; kDistributed.
  Status init_from_mpi(const std::string& host = {});
  /// Settings of environment and strategy that are never read, one line each; with a
  /// TranspilerStrategy also remarks on how the program was distributed.
  [[nodiscard]] std::vector<std::string> remarks() const;

  /// The role of this process; worker_num is set even if worker_endpoints are given. Errors: called
  /// before init().
  [[nodiscard]] StatusOr<FleetRole> role() const;
  /// This worker's share of a list of files: consecutive files; the first shares are one larger if
  /// the list cannot be divided evenly.
  [[nodiscard]] StatusOr<std::vector<std::string>> split_files(
      const std::vector<std::string>& files) const;

  /// Sets how the job trains. Errors: kInvalidArgument for an unknown key, a value of another type,
  /// and settings that are no mode; kUnimplemented naming a setting that is not supported, and for
  /// a hybrid job whose caller sets the learning rate in each step.
  Status distributed_optimizer(const MinimizeOptions& optimizer, const FleetStrategy& strategy);
  /// Sets that the job is one of the first fleet, whose servers run optimizer blocks. Errors:
  /// kInvalidArgument naming the field of the configuration; kUnimplemented for a learning rate
  /// that the caller sets in each step.
  Status distributed_optimizer(const MinimizeOptions& optimizer,
                               const TranspilerStrategy& strategy);
  /// Sets that the job is one of DownpourSGD. Errors: kInvalidArgument for a window below 1; those
  /// of keys and values come from minimize().
  Status distributed_optimizer(const DownpourStrategy& strategy);
  /// Builds the training program and the programs of this process from the forward ones, which are
  /// not changed. Errors: those of minimize() in api/training.h; kUnimplemented. With a
  /// DownpourStrategy kInvalidArgument for a program without a distributed lookup table and for an
  /// unknown key or a wrong value; kUnimplemented naming what its tables cannot do.
  Status minimize(const Program& main, const Program& startup, const std::string& loss);
  /// The program that this worker runs, or that of this server; null before minimize().
  [[nodiscard]] std::shared_ptr<const Program> main_program() const;
  /// The startup program of this process; null before minimize().
  [[nodiscard]] std::shared_ptr<const Program> startup_program() const;

  /// Tables and exchanges of this process. Errors: kInvalidArgument before minimize(), and with a
  /// TranspilerStrategy, whose programs say everything.
  [[nodiscard]] StatusOr<FleetDescription> description() const;

  /// Creates the tables of this server; with a TranspilerStrategy its variables, by its startup
  /// program and from `folder`, which has whole variables that save_persistables() has written, in
  /// the files of the original. `tables` and `options` must then be empty.
  /// \param folder  with tables that save_persistables() has written, on this machine; empty: none
  /// \param tables  with folder: names of embeddings to load; empty: all tables and dense
  ///                parameters
  /// \param service  `endpoint` must be empty: a server listens at its endpoint in the role
  /// Errors: kInvalidArgument naming the option; kNotFound, kInvalidData for files; kUnimplemented
  /// for a class of tables, an accessor or a rule that is not supported.
  Status init_server(const std::string& folder = {}, const std::vector<std::string>& tables = {},
                     const FleetTableOptions& options = {}, const ServerOptions& service = {});
  /// Serves until all workers have stopped or stop_server() is called. Errors: kDistributed for a
  /// port in use, and for a worker that is lost or never connected.
  Status run_server();
  /// Ends run_server(). Thread-safety: any thread, during the lifetime of the object.
  void stop_server();

  /// Waits for the servers, sends the initial parameters to them (the first worker) or receives
  /// them, and starts sending gradients. In a hybrid job all workers take those of the first one;
  /// all must then make the same number of steps, and an error of a step ends the job for all.
  /// Errors: kDistributed; those of the startup program; kInvalidArgument naming an option that
  /// this job has no use for, or a worker that cannot find the others.
  Status init_worker(const FleetWorkerOptions& options = {});
  /// Runs one step. \param feeds  by var name; dtype and dims as declared
  /// Errors: those of PreparedProgram::run(); kDistributed. The step counts as not done. Where
  /// must_go_back() then is true, call go_back() and feed from next_step() on:
  ///
  ///   while (fleet.next_step() < steps) {
  ///     const Status done = fleet.step(batch(fleet.next_step())).status();
  ///     if (done.ok()) continue;
  ///     if (!fleet.must_go_back()) return done;
  ///     MILLRACE_RETURN_IF_ERROR(fleet.go_back());
  ///   }
  StatusOr<Arrays> step(const Arrays& feeds, const std::vector<std::string>& fetches = {});
  /// The step from which this worker trains: 0, unless the servers of a synchronous job loaded
  /// snapshots. Feed from that step on.
  [[nodiscard]] int64_t first_step() const;
  /// Number of the next step: first_step() after init_worker().
  [[nodiscard]] int64_t next_step() const;
  /// True after an error of step(), train_from_dataset(), wait_for_all() or stop_worker() that
  /// go_back() fixes: a server of a synchronous job was started again, and its snapshot is older.
  [[nodiscard]] bool must_go_back() const;
  /// Goes back to the step of the servers' snapshots, as all workers must; next_step() then returns
  /// it. A dataset continues there with EpochOptions::first_batch: next_step() less the step at
  /// which the epoch began. Errors: kDistributed if a server or this worker no longer has the state
  /// of that step; called before init_worker().
  Status go_back();
  /// Runs one step for every batch of a data set (api/dataset.h). Give each worker its files
  /// (split_files()), or all of them and DatasetOptions::divide.
  /// Errors: those of step(), with the number of the batch; those of the readers of the data set,
  /// after the batches before the error have run; kUnimplemented if trainer_desc_configs name vars
  /// to dump, and in hybrid jobs for a data set that is not in memory; kInvalidData if the workers
  /// of a hybrid job have different numbers of batches.
  StatusOr<EpochResult> train_from_dataset(Dataset& dataset, const EpochOptions& options);
  /// A parameter of this worker, as last received. Errors: kNotFound; kInvalidArgument if it is not
  /// a dense array.
  [[nodiscard]] StatusOr<Array> get(const std::string& name) const;
  /// Waits for all workers; with a TranspilerStrategy between two steps. Errors: kDistributed at
  /// the deadline.
  Status barrier_worker();
  /// Ends training: sends what waits, and receives the final parameters when all workers have done
  /// so. No steps may follow; saving may. Errors: kDistributed at the deadline.
  Status wait_for_all();
  /// Sends what waits and tells the servers that this worker is done. Errors: kDistributed.
  Status stop_worker();

  /// Saves the results of the job, for load_model() and init_server(): the first worker writes its
  /// variables, servers their tables below their files_root; the other workers return immediately.
  /// No worker may train meanwhile. With a TranspilerStrategy the first worker writes all
  /// variables, one file each, those of servers joined; others may train: a synchronous job is
  /// saved as of the first worker's last step, an asynchronous one as its servers are at the moment
  /// of each call. Errors: kUsage for files that exist; kIo; kDistributed.
  Status save_persistables(const FleetFolder& to);
  /// Saves the part of the program that computes the fetches, under the same conditions. The model
  /// runs without servers. Errors: also those of api/persistables.h.
  Status save_inference_model(const FleetFolder& to, const std::vector<std::string>& feeds,
                              const std::vector<std::string>& fetches);
  /// Loads what save_persistables() has written; every worker must call it, between two steps.
  /// With a TranspilerStrategy the first worker reads the folder and sends the servers their
  /// variables; every worker reads those that only workers hold.
  /// In a hybrid job the first worker reads what workers keep, and an error ends the job.
  /// Errors: kNotFound, kInvalidData with the file; kDistributed; kUnimplemented for geo jobs, for
  /// synchronous servers that take snapshots, and for typed tables with a TranspilerStrategy.
  Status load_model(const FleetFolder& from);
  /// Ends a day of all sparse tables, whose statistics then decay; every worker must call it.
  /// Errors: kDistributed; kInvalidArgument for a TranspilerStrategy without sparse_tables;
  /// kUnimplemented for synchronous servers that take snapshots.
  Status shrink();

 private:
  struct Parts;
  PartsPtr<Parts> parts_;
};

}  // namespace millrace::api
