#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <llvm/ADT/ArrayRef.h>

#include "executor/collective/rings.h"
#include "executor/executor.h"
#include "framework/base/errors.h"
#include "framework/base/file.h"
#include "framework/base/log.h"
#include "framework/import.h"
#include "framework/program.h"
#include "jobs/data/step_dump.h"
#include "jobs/ps/device_steps.h"
#include "jobs/ps/trainer_workers.h"
#include "jobs/stats/trainer_numbers.h"
#include "jobs/stats/trainer_stats.h"
#include "ps/client/client.h"
#include "ps/metrics/metrics.h"
#include "ps/protocol/kinds.h"
#include "ps/transport/tracing.h"

namespace millrace::jobs {

/// One trainer of a job with parameter servers. The servers hold either slices of vars (TrainerJob)
/// or only typed tables (FleetTrainer).
///
/// Thread-safety: one caller at a time, except for worker_step().
class Trainer {
 public:
  /// The input files.
  struct Files {
    std::string program;
    std::string startup;  ///< may be empty
    std::string slices;   ///< may be empty if nothing is gathered
    std::string params;   ///< whole variables; may be empty
  };
  /// Settings of the run.
  struct Settings {
    int trainer = 0;
    int threads = 1;
    uint64_t seed = 0;
    bool optimize = true;
    std::string files_root;  ///< folder that ops may use; empty: none
    /// Settings of the communicator, from environment variables.
    std::map<std::string, std::string> communicator;
    int cpu_num = 1;
    int workers = 1;  ///< threads that run steps concurrently; asynchronous jobs only
    /// Options of several devices; empty: there is one device.
    DeviceSteps::Options devices;
    /// Without `devices`: "cpu", or a GPU as executor::open_device() names it. Each trainer opens
    /// it for itself.
    std::string device = "cpu";
    /// Connects the trainers of a job that averages dense gradients by all-reduce, in the order of
    /// their numbers; called for such jobs only. Empty: such jobs are refused.
    /// \param endpoints  of all trainers, as the files of the job state them; may be empty
    std::function<StatusOr<std::shared_ptr<executor::Rings>>(
        const std::vector<std::string>& endpoints, int trainer, int trainers)>
        ranks;
    ps::ClientOptions
        client;             ///< calls to the servers; `trainer` is set when the trainer is opened
    ImportOptions reading;  ///< limits for program files
    LogSink log = ignore_log;
  };

  explicit Trainer(int number) : number_(number) { stats_.trainer = number; }
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;
  virtual ~Trainer() = default;

  [[nodiscard]] virtual const Program& program() const = 0;
  /// Number of trainers of the job; 0 if its files do not state it.
  [[nodiscard]] virtual int trainers() const { return 0; }
  /// The trainers that run steps together with this one because they average dense gradients by
  /// all-reduce; null: none.
  [[nodiscard]] virtual executor::CollectiveGroup* ranks() const { return nullptr; }
  /// Adds the vars that the files of the job dump. Errors: kUsage if there are some and no folder
  /// is given.
  virtual Status add_dumps(DumpOptions& /*dump*/) const { return Ok(); }
  /// First step of the run: 0, unless servers loaded snapshots or this trainer replaces a lost one.
  [[nodiscard]] virtual int64_t first_step() const { return 0; }
  /// True after an error of step() or finish() that going back can fix.
  [[nodiscard]] virtual bool must_go_back() const { return false; }
  /// Goes back to the step of the servers' snapshots. \returns that step
  /// Errors: kDistributed if a server or this trainer no longer has the state of that step.
  virtual StatusOr<int64_t> go_back() {
    return Status(StatusCode::kDistributed, "this trainer cannot go back");
  }
  /// The same, again each time that a server restarts meanwhile.
  StatusOr<int64_t> go_back_until_settled();
  /// Runs one step; in federated training one round. \param results  by name; their memory is
  /// reused
  virtual Status step(int64_t number, const executor::NamedValues& feeds,
                      const std::vector<std::string>& fetches, executor::NamedValues& results) = 0;
  /// Runs one step of one of several workers; otherwise like step().
  /// Thread-safety: different workers at once.
  virtual Status worker_step(int /*worker*/, int64_t number, const executor::NamedValues& feeds,
                             const std::vector<std::string>& fetches,
                             executor::NamedValues& results) {
    return step(number, feeds, fetches, results);
  }
  /// All workers run steps again, after they have finished.
  void workers_join();
  /// Marks a worker as finished; it runs no more steps.
  Status worker_leaves();
  [[nodiscard]] int workers() const { return workers_ == nullptr ? 1 : workers_->count(); }
  /// Starts to record the time of later steps, and the value of the first fetch if it is one
  /// number.
  /// \param trace  receives the ops; may be null, otherwise it must outlive the job
  virtual void keep_stats(ps::CallTrace* trace) = 0;
  [[nodiscard]] virtual TrainerStats stats() const = 0;
  /// Publishes metrics of every step there; metrics must outlive the job.
  void publish_to(ps::Metrics& metrics) {
    numbers_ = std::make_unique<TrainerNumbers>(metrics, number_);
  }

  /// What is saved when all trainers are done. Only trainer 0 writes files.
  struct Ending {
    /// Receives parameters and optimizer state from the servers, by original name; null: not
    /// gathered.
    executor::NamedValues* gather = nullptr;
    std::string params;  ///< folder for files of the original; empty: none
    std::vector<std::string>
        save_programs;  ///< run instead of the generated ones that save the variables of servers
    std::string model;  ///< folder for an inference model; empty: none
    std::string model_program;  ///< file of the program before it was transpiled
    std::vector<std::string> model_feeds;
    std::vector<std::string> model_fetches;
    Replace replace = Replace::kNo;
    /// Folder that `params` and `model` are below; servers use the rest of the path below their own
    /// root. Empty: Settings::files_root.
    std::string root = {};
  };
  /// Saves `params` and `model` now, between two steps, if this is trainer 0.
  virtual Status save(const Ending& ending) = 0;
  /// Sends what waits, and returns when all trainers have called it or finish(). No steps may
  /// follow. Errors: kDistributed at the deadline.
  virtual Status wait_for_all() = 0;
  /// Notifies the servers that this trainer is done.
  virtual Status finish(const Ending& ending) = 0;
  /// Waits for all trainers, between two steps. Errors: kDistributed at the deadline.
  virtual Status barrier(ps::CommBarrier /*kind*/) {
    return Unimplemented("barriers of this trainer");
  }
  /// All trainers call it between two steps: trainer 0 sends the servers the whole variables of a
  /// folder, and all receive parameters and load what only they hold. \param servers  the programs
  /// of all servers, for trainer 0 alone
  /// Errors: kUnimplemented for geo jobs and typed tables; those of load_server_persistables().
  virtual Status load_model(llvm::ArrayRef<const Program*> /*servers*/,
                            const std::string& /*folder*/) {
    return Unimplemented("loading a model by this trainer");
  }
  /// Ends a day of the typed tables; all trainers call it between two steps. Errors:
  /// kInvalidArgument for a job without such tables; kDistributed.
  virtual Status end_day() { return Unimplemented("ending a day by this trainer"); }
  /// A var of this trainer; null: there is none.
  [[nodiscard]] virtual const Value* find(const std::string& name) const = 0;
  /// The ops of a step that run on a GPU; null: there is none, or there are several devices.
  [[nodiscard]] virtual const executor::GpuOps* gpu() const { return nullptr; }

 protected:
  /// True if this trainer is the one that writes files, and there are some to write.
  [[nodiscard]] bool writes_files(const Ending& ending) const {
    return number_ == 0 && (!ending.params.empty() || !ending.model.empty());
  }
  /// The folder that what is saved is below; may be empty.
  static const std::string& root_of(const Ending& ending, const Settings& settings) {
    return ending.root.empty() ? settings.files_root : ending.root;
  }
  /// Opens settings.device, and warns of libraries that it lacks; null: the CPU. Errors: those of
  /// open_device(); kUnimplemented with several workers.
  static StatusOr<std::shared_ptr<gpu::Context>> open_gpu(const Settings& settings);
  /// Errors: kUsage if a model is to be saved and its program is not given.
  static Status need_model_program(const Ending& ending);
  /// Counts a completed step. \param values  of the fetches  \param devices  number of devices
  void count_step(const executor::NamedValues& feeds, const std::vector<std::string>& fetches,
                  llvm::ArrayRef<Value> values, double seconds, int devices);
  /// A step of the trainer.
  struct Step {
    int64_t number = 0;
    const std::string& file;  ///< of the program, for messages
    const executor::NamedValues& feeds;
    const std::vector<std::string>& fetches;
    int devices = 1;
  };
  /// Runs and counts a step. \param run  receives the values of the fetches
  Status counted_step(const Step& step, executor::NamedValues& results,
                      const std::function<Status(std::vector<Value>&)>& run);

  /// The statistics with the time by activity: that of the workers, else that of the clock.
  /// \param waited  further seconds that steps have waited
  [[nodiscard]] TrainerStats timed_stats(const TransferClock& clock, double waited = 0) const;

  TrainerStats stats_;                       ///< of the steps so far, without the time by activity
  std::unique_ptr<TrainerWorkers> workers_;  ///< null: there is one worker

 private:
  int number_;
  std::unique_ptr<TrainerNumbers> numbers_;  ///< null: metrics are not published
  std::mutex counting_;                      ///< guards stats_ while workers run
};

/// Opens a trainer of the kind that matches the files: a FleetTrainer if `transpile-program
/// --fleet` wrote them, otherwise a TrainerJob. Errors: those of their open().
StatusOr<std::unique_ptr<Trainer>> open_trainer(const Trainer::Files& files,
                                                const Trainer::Settings& settings,
                                                std::shared_ptr<ps::Transport> transport);

/// Reads the communicator settings among variables of an environment: FLAGS_communicator_*, and the
/// number of threads in CPU_NUM (default 1).
/// \param environment  "NAME=VALUE" each
/// Errors: kUsage for a CPU_NUM that is not a number above 0.
Status read_communicator_settings(const std::vector<std::string>& environment,
                                  Trainer::Settings& settings);

}  // namespace millrace::jobs
