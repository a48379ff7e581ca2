#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "executor/collective/rings.h"
#include "executor/executor.h"
#include "executor/gpu/kept_places.h"
#include "fleet/runtime/local_state.h"
#include "framework/base/status.h"
#include "framework/program.h"
#include "framework/tensor/scope.h"
#include "ps/client/trainer_link.h"
#include "ps/communicator/communicator.h"
#include "ps/table/table_sender.h"
#include "ps/table/trainer_tables.h"
#include "ps/transport/transport.h"

namespace millrace::fleet {

/// Settings of a worker of a fleet job.
struct WorkerSetup {
  const Program* main = nullptr;     ///< of make_fleet_worker()
  const Program* startup = nullptr;  ///< likewise
  std::string description;           ///< ps_desc.txt of this worker
  ps::CommMode mode = ps::CommMode::kAsync;
  std::vector<std::string> servers;
  int worker = 0;
  int workers = 1;
  ps::CommContexts send;                                     ///< send_contexts()
  std::map<int32_t, std::vector<std::string>> dense_tables;  ///< dense_receives()
  std::map<std::string, std::string> communicator;           ///< communicator_flags()
  int threads = 1;                     ///< that run steps side by side; see prepare_thread()
  executor::ExecutorOptions executor;  ///< its GPU runs the main program only
  ps::ClientOptions client;            ///< the worker's number is set by FleetWorker
  /// Receives log lines about servers that have not connected yet; may be empty.
  std::function<void(const std::string&)> log;
  /// Connects the workers of a job that averages dense gradients by all-reduce
  /// (JobSpec::all_reduces_dense): its ranks are the workers. Null: servers have the dense
  /// parameters.
  std::shared_ptr<executor::Rings> rings;
  std::string scheduled_rate;  ///< with rings: JobSpec::scheduled_rate
};

/// A worker of a fleet job: it looks up rows on the servers, sends gradients, and receives
/// parameters while it trains.
///
/// Not thread-safe. Source: spec/fleet.md section 4.
class FleetWorker {
 public:
  /// Runs the startup program and compiles the main one; does not contact servers yet.
  /// Errors: those of the programs.
  static StatusOr<std::unique_ptr<FleetWorker>> create(const WorkerSetup& setup,
                                                       std::shared_ptr<ps::Transport> transport);
  FleetWorker(const FleetWorker&) = delete;
  FleetWorker& operator=(const FleetWorker&) = delete;
  ~FleetWorker();

  /// Sends the first worker's parameters to the servers, receives them in the other workers, and
  /// starts sending. If servers have loaded dense parameters or snapshots, all workers receive
  /// those. Workers that average dense gradients take all persistable values of worker 0.
  /// Errors: kDistributed for servers or workers that do not connect by the deadline;
  /// kInvalidArgument if the rings have other ranks than the job has workers.
  Status start();
  /// The step from which a synchronous worker trains: 0, unless servers loaded snapshots or this
  /// worker replaces a lost one.
  [[nodiscard]] int64_t first_step() const { return first_step_; }
  /// The step that step() runs next. One that ends with an error counts as not done.
  [[nodiscard]] int64_t next_step() const { return step_; }
  /// True after an error that go_back() can fix: a server was started again at an older step.
  /// Workers with the dense parameters need servers with snapshots for that.
  [[nodiscard]] bool must_go_back() const {
    return client_->must_settle() && (rings_ == nullptr || (dense_every_ > 0 && meets_));
  }
  /// Goes back to the step of the servers' snapshots, with their parameters, the rate of that step,
  /// and the values that only this worker has. \returns that step
  /// Errors: kDistributed if a server or this worker no longer has it, or in a job that is not
  /// synchronous.
  StatusOr<int64_t> go_back();
  /// The var of a learning rate that the caller steps (a scheduler object of 2.x); empty: the rate
  /// is a constant. The servers receive its value before the next step.
  [[nodiscard]] const std::string& scheduled_rate() const { return scheduled_rate_; }
  /// Sets the rate; a feed of its var has the same effect. Errors: kInvalidArgument if the job has
  /// no such rate.
  Status set_rate(float rate);
  /// The step, from 0, of which a schedule takes the rate: that of this worker, but in asynchronous
  /// jobs with several workers the steps of all workers so far, as on the original's servers
  /// (GlobalStepTable). Call it once in each step, before set_rate(); schedules in the program call
  /// it themselves. Errors: kDistributed.
  StatusOr<int64_t> schedule_step(int64_t own);
  /// Runs one step of the main program. In geo mode, the worker updates its parameters itself;
  /// every k-th step sends differences to the servers and receives the changes of other workers.
  Status step(const executor::NamedValues& feeds, const std::vector<std::string>& fetches,
              std::vector<Value>& results);
  /// Compiles the main program once more, for a thread that runs its steps beside others, with its
  /// own variables in the scope. Asynchronous jobs with a constant rate only.
  /// \param thread, threads  its number; the threads of the executor are divided
  /// Errors: those of compilation.
  StatusOr<std::unique_ptr<executor::PreparedProgram>> prepare_thread(int thread, int threads,
                                                                      Scope& scope) const;
  /// Errors: kInvalidArgument for a feed of a rate that is constant, and of a persistable var that
  /// all workers must have alike.
  [[nodiscard]] Status check_feeds(const executor::NamedValues& feeds) const;
  /// True if the learning rate is no constant: it is computed, or the caller steps it.
  [[nodiscard]] bool has_schedule() const {
    return rate_program_ != nullptr || !scheduled_rate_.empty();
  }
  /// Sends what waits (geo: except for changes since the last push) and waits until all workers
  /// have done so, then receives the final parameters. No steps may follow, but tables can be read.
  /// Errors: kDistributed at the deadline, and if members of a group() have made other numbers of
  /// steps.
  Status wait_for_all();
  /// Sends what waits, receives the final parameters and reports to the servers that this worker is
  /// done.
  Status stop();
  /// Sets an observer of the ops of later steps; null: none.
  void observe(executor::OpObserver* observer) { prepared_->observe(observer); }
  /// Seconds for which steps have waited for other workers and for parameters.
  [[nodiscard]] double waited_seconds() const { return waited_; }
  /// The ops of a step that run on a GPU; null: there is none.
  [[nodiscard]] const executor::GpuOps* gpu() const { return prepared_->gpu(); }
  [[nodiscard]] Scope& scope() { return scope_; }
  [[nodiscard]] ps::Communicator& communicator() { return *communicator_; }
  /// The job's sparse tables; null if there are none.
  [[nodiscard]] ps::TrainerTables* tables() { return tables_.get(); }
  /// Makes calls to the servers about their tables.
  [[nodiscard]] ps::TableClient& table_client() { return *table_client_; }
  [[nodiscard]] const Program& program() const { return *main_; }
  [[nodiscard]] const std::vector<std::string>& servers() const { return servers_; }
  /// Parameters of each dense table, by table id.
  [[nodiscard]] const std::map<int32_t, std::vector<std::string>>& dense_tables() const {
    return dense_tables_;
  }
  [[nodiscard]] ps::CommMode mode() const { return mode_; }
  [[nodiscard]] int index() const { return client_->options().trainer; }
  /// All workers of a job that averages dense gradients by all-reduce; null in other jobs, and
  /// before start().
  [[nodiscard]] executor::CollectiveGroup* group() const { return group_; }
  /// Vars that hold rates of a schedule during a step only, although they are persistable.
  [[nodiscard]] const std::set<std::string>& rate_vars() const { return rate_vars_; }
  /// Says whether this worker has loaded a saved job. In a job that averages dense gradients,
  /// start() of worker 0 returns kInvalidArgument unless the servers have done the same; in other
  /// jobs with a schedule in the program it warns if only the servers have.
  void expect_loaded(bool loaded) { expects_loaded_ = loaded; }
  /// Takes all persistable values of worker 0; all workers of a group() call it, between two steps.
  /// Errors: kInvalidData if workers have other persistable vars; kDistributed.
  Status share_values();
  /// Breaks the group of workers if the status is an error, so that the others learn of it.
  /// \returns the status
  Status abandon(Status status);

 private:
  FleetWorker() = default;
  Status set_plan(const WorkerSetup& setup);
  Status make_tables(const WorkerSetup& setup);
  Status make_communicator(const WorkerSetup& setup);
  Status open_communicator();
  [[nodiscard]] Status check_pushes() const;
  [[nodiscard]] Status check_mode();
  Status keep_first_values();
  StatusOr<bool> have_values(int64_t step);
  Status wait_for_values(int64_t step);
  Status send_first_values();
  void find_local_state();
  StatusOr<int64_t> settle();
  Status begin_at(int64_t step);
  Status keep_schedule();
  Status warn_of_schedule();
  Status set_schedule(int64_t step);
  Status prepare(const WorkerSetup& setup);
  Status init_params();
  Status join_workers();
  Status check_loaded_together();
  Status find_snapshots();
  /// Members of the group compare what each is about to do.
  enum class Meeting : int64_t { kStep, kGoBack, kEnd };
  Status meet(Meeting own);
  /// The first sum of a step waits for all rows of all workers.
  Status meet_in_step();
  Status end_steps();
  Status run_step(const executor::NamedValues& feeds, const std::vector<std::string>& fetches,
                  std::vector<Value>& results);
  /// On a GPU: brings vars of the learning rate to process memory, until settle().
  Status bring_rates();
  /// On a GPU: notes where the parameters are that the communicator receives, until settle().
  void note_received();
  [[nodiscard]] Status settle_places() { return places_ == nullptr ? Ok() : places_->settle(); }
  Status send_rate();
  Status send_rate(const Value* value, const std::string& name);
  Status send_computed_rate();
  /// Sets the counters of the schedule in the program to the steps before this one.
  Status set_step_counters();
  Status send_with_step(const Value& rate);
  Status run(const executor::NamedValues& feeds, const std::vector<std::string>& wanted,
             std::vector<Value>& results);
  void take_sends(const WorkerSetup& setup);
  Status record_rows(llvm::ArrayRef<Value> grads);

  ps::CommMode mode_ = ps::CommMode::kAsync;
  std::vector<std::string> servers_;
  std::function<void(const std::string&)> log_;
  std::shared_ptr<ps::Client> client_;
  std::shared_ptr<ps::TrainerLink> link_;
  std::shared_ptr<ps::TableClient> table_client_;
  std::shared_ptr<ps::TrainerTables> tables_;  ///< null: the job has no sparse tables
  std::map<int32_t, std::vector<std::string>> dense_tables_;
  std::unique_ptr<Program> main_;
  std::shared_ptr<executor::Runtime> runtime_;
  executor::ExecutorOptions executor_;
  Scope scope_;
  /// On a GPU: where vars are that other code than the main program changes. Null: no GPU.
  std::unique_ptr<executor::KeptPlaces> places_;
  std::shared_ptr<ps::TableSender> sender_;
  ps::CommunicatorOptions communicator_options_;
  ps::CommContexts sends_;
  ps::CommContexts receives_;
  std::unique_ptr<ps::Communicator> communicator_;
  std::unique_ptr<executor::PreparedProgram> prepared_;
  /// The ops of main_ that compute the learning rate; null: there are none.
  std::unique_ptr<Program> rate_main_;
  std::unique_ptr<executor::PreparedProgram> rate_program_;
  std::string scheduled_rate_;
  int rate_table_ = 0;
  std::optional<float> sent_rate_;
  bool shares_steps_ = false;  ///< schedules count the steps of all workers
  /// A var that the schedule in the program increments once in each step.
  struct StepCounter {
    std::string name;
    double first = 0;  ///< its value when the worker starts
    double step = 1;   ///< what is added in each step
  };
  /// Errors: kUnimplemented for a counter that is neither an i64 nor an f32 number.
  static StatusOr<std::vector<StepCounter>> step_counters_of(const Program& schedule,
                                                             const Scope& scope);
  std::vector<StepCounter> step_counters_;
  Value step_rate_;  ///< synchronous jobs: the rate that is sent with the step
  /// Of vars that the schedule changes: values before the first step.
  executor::NamedValues schedule_start_;
  /// Synchronous jobs, worker 0: the parameters before the first step. Servers that are started
  /// again before their first snapshot need them.
  executor::NamedValues first_values_;
  /// What only this worker has, such as running means of batch norms, or what all members of a
  /// group have alike; synchronous jobs alone.
  std::optional<LocalState> local_;
  /// With a group: steps between the servers' snapshots, of which this worker keeps copies; 0: no
  /// snapshots, or no group.
  int64_t dense_every_ = 0;
  bool meets_ = false;                      ///< with a group, from start() to the end of the steps
  bool met_in_step_ = false;                ///< this step has met the others
  bool told_to_go_back_ = false;            ///< by another member of the group
  std::shared_ptr<executor::Rings> rings_;  ///< null: servers have the dense parameters
  executor::CollectiveGroup* group_ = nullptr;  ///< of the rings
  int workers_ = 1;
  std::set<std::string> rate_vars_;
  bool expects_loaded_ = false;
  int64_t first_step_ = 0;
  int64_t step_ = 0;
  double waited_ = 0;
  /// Geo: the gradient whose row ids are the rows of an embedding that a step has looked up.
  struct RowSource {
    std::string param;
    std::string grad;
  };
  std::vector<RowSource> row_sources_;
};

}  // namespace millrace::fleet
