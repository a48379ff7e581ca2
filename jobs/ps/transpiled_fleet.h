#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "executor/executor.h"
#include "fleet/roles/role_maker.h"
#include "fleet/roles/wait_servers.h"
#include "framework/base/file.h"
#include "framework/base/status.h"
#include "framework/program.h"
#include "jobs/distribute/distribution.h"
#include "jobs/ps/server.h"
#include "jobs/ps/trainer.h"
#include "ops/minimize/options.h"
#include "ops/registry.h"
#include "ps/transport/transport.h"
#include "transpiler/distribute_config.h"

namespace millrace::jobs {

/// How a job of the original's first fleet trains.
struct TranspiledStrategy {
  transpiler::DistributeTranspilerConfig config;
  /// Settings of the communicator by name, as in TrainerRuntimeConfig of the original.
  std::map<std::string, std::string> communicator;
  /// JSON: embeddings that become typed tables (DistributionOptions); empty: none.
  std::string sparse_tables;
};

/// Where results are saved; see FleetFolder of the installed library.
struct TranspiledSaveTarget {
  std::string root;
  std::string folder;  ///< below root
  Replace replace = Replace::kNo;
};

/// One process of a job whose servers run optimizer blocks, with the calls of the original's first
/// fleet classes (DistributedTranspiler, FleetTranspiler, ParameterServerRuntime). It transpiles
/// the program and opens this process's trainer or server, from files that exist only meanwhile.
///
/// Calls in another order, or of the other role, return kInvalidArgument naming both.
/// Thread-safety: one call at a time, except for stop_server(). Source: spec/fleet.md sections 4
/// and 12, seed 002.
class TranspiledFleet {
 public:
  /// \param scratch  existing folder for temporary files
  /// Errors: kInvalidArgument naming the field of the strategy; kUnimplemented for a job without
  /// servers, and for a learning rate that the caller sets in each step.
  static StatusOr<std::unique_ptr<TranspiledFleet>> create(fleet::RoleMaker role,
                                                           MinimizeOptions optimizer,
                                                           TranspiledStrategy strategy,
                                                           const std::string& scratch);
  TranspiledFleet(const TranspiledFleet&) = delete;
  TranspiledFleet& operator=(const TranspiledFleet&) = delete;
  ~TranspiledFleet();

  /// Adds gradients and updates to the forward programs, which are not changed, and distributes the
  /// result. Errors: those of ops::minimize() and Distribution::make(); kIo.
  Status minimize(const Program& main, const Program& startup, const std::string& loss);
  /// The programs of this process; null before minimize().
  [[nodiscard]] const Program* main_program() const { return main_.get(); }
  [[nodiscard]] const Program* startup_program() const { return startup_.get(); }
  /// Remarks on how the program was distributed.
  [[nodiscard]] const std::vector<std::string>& remarks() const { return remarks_; }

  /// Runs the startup program of this server. \param folder  whole variables that a job has saved,
  /// of which this server loads its slices; empty: none
  /// Errors: called before minimize(); not a server; kNotFound for the folder; those of
  /// open_server().
  Status init_server(const std::string& folder, const ps::ServerOptions& service,
                     std::shared_ptr<ps::Transport> transport);
  /// Serves until all workers have stopped. Errors: called before init_server(); those of serving.
  Status run_server();
  /// Ends run_server(). Thread-safety: any thread, during the lifetime of the object.
  void stop_server();

  /// Waits for the servers, runs the startup program, which fetches parameters, and starts the
  /// communicator. Errors: called before minimize(); not a worker; a second call; those of
  /// open_trainer().
  /// \param wait      null: do not wait for TCP ports; config.wait_port false has the same effect
  /// \param settings  `trainer` is set by this call; the strategy's settings of the communicator
  ///                  override those given
  /// \param folder    whole variables that a job has saved, of which this worker loads those that
  ///                  no server has; empty: none
  Status init_worker(std::shared_ptr<ps::Transport> transport, const fleet::WaitOptions* wait,
                     Trainer::Settings settings, const std::string& folder = {});
  /// Runs one step. Errors: called before init_worker() or after wait_for_all(); those of
  /// Trainer::step().
  Status step(const executor::NamedValues& feeds, const std::vector<std::string>& fetches,
              std::vector<Value>& results);
  /// The step from which this worker trains, and the next one; 0 before init_worker().
  [[nodiscard]] int64_t first_step() const {
    return trainer_ == nullptr ? 0 : trainer_->first_step();
  }
  [[nodiscard]] int64_t next_step() const { return next_step_; }
  /// True after an error that go_back() fixes.
  [[nodiscard]] bool must_go_back() const {
    return trainer_ != nullptr && trainer_->must_go_back();
  }
  /// Goes back to the step of the servers' snapshots, which next_step() then returns; training
  /// continues, also after wait_for_all() or stop_worker() has failed. Errors: called before
  /// init_worker(); those of Trainer::go_back().
  Status go_back();
  /// A var of this worker. Errors: kNotFound.
  [[nodiscard]] StatusOr<const Value*> find(const std::string& name) const;
  /// Waits for all workers, between two steps. Errors: called before init_worker(); kDistributed at
  /// the deadline.
  Status barrier_worker();
  /// Loads what save_persistables() has written, without `replace`; all workers call it between two
  /// steps. Errors: called before init_worker(); those of Trainer::load_model(); kUnimplemented for
  /// servers of a synchronous job that take snapshots.
  Status load_model(const TranspiledSaveTarget& from);
  /// Ends a day of the typed tables. Errors: as above; those of Trainer::end_day().
  Status shrink();
  /// Ends training: sends what waits, and returns when all workers have called it or
  /// stop_worker(). No steps may follow; saving may. Errors: kDistributed at the deadline.
  Status wait_for_all();
  /// Sends what waits and tells the servers that this worker is done. Errors: called before
  /// init_worker(), or twice; kDistributed.
  Status stop_worker();

  /// The first worker saves the variables of the job, those of servers fetched from them; the other
  /// workers return immediately. Between two steps of a synchronous job the values are those of the
  /// last step, whatever the other workers do; asynchronous workers may change them meanwhile.
  /// Errors: called before init_worker(); those of Trainer::save().
  Status save_persistables(const TranspiledSaveTarget& to);
  /// The same for the part of the program that computes the fetches; the model runs without
  /// servers.
  Status save_inference_model(const TranspiledSaveTarget& to, const std::vector<std::string>& feeds,
                              const std::vector<std::string>& fetches);

 private:
  class Folder;
  TranspiledFleet() = default;
  Status need_programs(const char* call, bool server) const;
  Status need_worker(const char* call) const;
  Status need_training(const char* call) const;
  /// Makes the files of this process's role.
  Status distribute(const ops::OpRegistry& registry, const Program& main, const Program& startup);
  /// A temporary folder with these files.
  [[nodiscard]] StatusOr<std::unique_ptr<Folder>> write(const std::vector<JobFile>& files) const;
  Status save(const TranspiledSaveTarget& to, Trainer::Ending ending);

  fleet::RoleMaker role_;
  MinimizeOptions optimizer_;
  TranspiledStrategy strategy_;
  std::string scratch_;
  std::vector<JobFile> files_;     ///< of this process's role, and of the whole job
  std::vector<JobFile> training_;  ///< the training program before it was distributed
  std::unique_ptr<Program> main_;
  std::unique_ptr<Program> startup_;
  std::vector<std::unique_ptr<Program>> servers_;  ///< of all servers, in the first worker
  std::vector<std::string> remarks_;
  std::unique_ptr<Server> server_;
  std::unique_ptr<Trainer> trainer_;
  int64_t next_step_ = 0;
  bool trains_ = false;   ///< between init_worker() and wait_for_all() or stop_worker()
  bool stopped_ = false;  ///< stop_worker() was called
};

}  // namespace millrace::jobs
