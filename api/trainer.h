#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "api/connection.h"
#include "api/job.h"
#include "executor/array.h"
#include "executor/parallel/strategies.h"
#include "framework/base/status.h"

namespace millrace::api {

class Dataset;
struct EpochOptions;
struct EpochResult;

/// Several devices of one trainer: a step is split over them, and gradients are sent and parameters
/// received once for all.
struct TrainerDevices {
  int devices = 1;        ///< CPU devices, at least 1
  std::string loss_name;  ///< of the trainer's program
  executor::ExecutionStrategy exec_strategy = {};
  executor::BuildStrategy build_strategy = {};
  executor::SplitRule split = executor::SplitRule::kFloor;  ///< how a batch is divided
};

/// Settings of a trainer. The tool `run-program --role trainer` has flags of similar names.
struct TrainerOptions {
  int trainer = 0;              ///< number of this trainer, from 0
  int threads = 1;              ///< of all its steps together, at least 1
  uint64_t seed = 0;            ///< of random numbers
  bool optimize = true;         ///< programs are rewritten to run faster
  std::string files_root = {};  ///< folder that ops and saves may use; empty: none
  /// Settings of the communicator by name: FLAGS_communicator_max_merge_var_num, ... of the
  /// original. Only asynchronous and geo trainers have a communicator.
  std::map<std::string, std::string> communicator = {};
  /// Threads that the communicator counts on (CPU_NUM of the original); at least 1.
  int cpu_num = 1;
  int workers = 1;  ///< threads that run steps at the same time; asynchronous jobs only
  std::optional<TrainerDevices> devices = {};  ///< absent: one device, by the plain executor
  /// Longest time of one call to a server, waiting for other trainers included.
  std::chrono::milliseconds deadline{180'000};
  std::chrono::milliseconds heartbeat{0};  ///< interval of signs of life; 0: none
  Log log = {};
};

/// What a trainer does at its end. Only trainer 0 writes files.
struct TrainerEnding {
  /// Returns parameters and optimizer state from the servers, by original name; slices are joined.
  bool gather = false;
  std::string params = {};  ///< folder for the values, in files of the original; empty: none
  /// Files of programs that fetch the servers' values, in place of generated ones.
  std::vector<std::string> save_programs = {};
  std::string model = {};          ///< folder for an inference model; empty: none
  std::string model_program = {};  ///< with model: file of the program before it was distributed
  std::vector<std::string> model_feeds = {};
  std::vector<std::string> model_fetches = {};
  bool replace = false;  ///< replace files that exist; otherwise an error (kUsage)
};

/// What a trainer has done so far.
struct TrainerStats {
  std::string loss_name;       ///< empty if no single number was fetched
  std::vector<double> losses;  ///< of the first fetch, one per step
  int64_t steps = 0;
  int64_t examples = 0;        ///< rows of the feeds
  double seconds = 0;          ///< all steps, wall-clock time
  double compute_seconds = 0;  ///< ops without communication
  double send_seconds = 0;     ///< sending gradients
  double wait_seconds = 0;     ///< waiting for values and for other trainers
};

/// One trainer of a job with parameter servers, in the process of a server or in another one. The
/// folder of the job was written by write_job() or `transpile-program`, with `--fleet` as well.
///
///   MILLRACE_ASSIGN_OR_RETURN(Trainer trainer, Trainer::open(trainer_files("job", 0),
///                                                            connection));
///   for (const Arrays& batch : batches)
///     MILLRACE_RETURN_IF_ERROR(trainer.step(batch, {"loss"}).status());
///   MILLRACE_ASSIGN_OR_RETURN(const Arrays params, trainer.finish({.gather = true}));
///
/// A trainer that ends without finish() is lost for the servers. Movable between steps.
/// Thread-safety: one caller at a time, except for worker_step().
class Trainer {
 public:
  /// Reads the programs, connects to the servers, waiting for them until the deadline, runs the
  /// startup program, which fetches parameters, and compiles.
  /// Errors: kNotFound, kInvalidProgram and kInvalidData for the files; kInvalidArgument naming the
  /// option; kDistributed for servers that cannot be reached; kUnimplemented for options that this
  /// kind of job does not have.
  static StatusOr<Trainer> open(const RoleFiles& files, const Connection& connection,
                                const TrainerOptions& options = {});
  Trainer(Trainer&&) noexcept;
  Trainer& operator=(Trainer&&) noexcept;
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;
  ~Trainer();

  /// Number of the next step: 0 at the start of a job, more if the servers loaded snapshots.
  [[nodiscard]] int64_t next_step() const;
  /// Runs one step: computes, sends gradients and receives parameters as the mode of the job says.
  /// \param feeds    by var name, for this step; dtype and dims as declared
  /// \param fetches  vars to return, by name
  /// Errors: kInvalidArgument for a feed of a var that servers hold; kDistributed for a lost server
  /// or trainer and at the deadline; those of PreparedProgram::run(). The step counts as not done.
  StatusOr<Arrays> step(const Arrays& feeds, const std::vector<std::string>& fetches = {});
  /// Runs one step for every batch of a data set (api/dataset.h), by TrainerOptions::workers
  /// threads if there are several: then EpochOptions::on_print is called by them, one at a time,
  /// and batches end in any order. After an error of a step that go_back() fixes, continue with
  /// EpochOptions::first_batch: next_step() less the step at which the epoch began. Errors: those
  /// of step(), with the number of the batch; those of the readers of the data set, after the
  /// batches before the error have run.
  StatusOr<EpochResult> train_from_dataset(Dataset& dataset, const EpochOptions& options);
  /// Runs one step by one of TrainerOptions::workers threads.
  /// \param worker  from 0  \param number  of the step, for messages
  /// Errors: also kInvalidArgument for a worker that does not exist. Thread-safety: different
  /// workers at the same time.
  StatusOr<Arrays> worker_step(int worker, int64_t number, const Arrays& feeds,
                               const std::vector<std::string>& fetches = {});
  /// A worker thread runs no more steps; the others do not wait for it any longer.
  Status worker_leaves();

  /// True after an error of step() or finish() that going back can fix: a server restarted at an
  /// older step.
  [[nodiscard]] bool must_go_back() const;
  /// Goes back to the step of the servers' snapshots, which next_step() then returns; training
  /// continues, also after finish() has failed. Errors:
  /// kDistributed if a server or this trainer no longer has the state of that step.
  Status go_back();

  [[nodiscard]] TrainerStats stats() const;
  /// Sends the gradients that are still queued, disconnects from the servers, and saves. Call it
  /// once.
  /// \returns what was gathered
  /// Errors: kUsage for a model without its program, for values of servers without slices.json, and
  /// for files that exist; kDistributed; those of writing.
  StatusOr<Arrays> finish(const TrainerEnding& ending = {});

 private:
  struct Parts;
  explicit Trainer(std::unique_ptr<Parts> parts);
  PartsPtr<Parts> parts_;
};

}  // namespace millrace::api
