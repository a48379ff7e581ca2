#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "executor/executor.h"
#include "framework/base/errors.h"
#include "framework/base/file.h"
#include "framework/program.h"
#include "ps/metrics/metrics.h"
#include "ps/transport/tracing.h"
#include "tools/common/tool.h"
#include "tools/ps/device_steps.h"
#include "tools/ps/flags.h"
#include "tools/ps/trainer_numbers.h"
#include "tools/ps/trainer_stats.h"

namespace millrace::tools {

/// One trainer of a job with parameter servers, whatever its servers hold: slices of vars
/// (TrainerJob) or typed tables alone (FleetTrainer).
///
/// Thread-safety: one caller, but for worker_step().
class Trainer {
 public:
  /// Where everything comes from.
  struct Files {
    std::string program;
    std::string startup;  ///< may be empty
    std::string slices;   ///< may be empty if nothing is gathered
    std::string params;   ///< whole variables; may be empty
  };
  /// How it runs.
  struct Settings {
    int trainer = 0;
    int threads = 1;
    bool optimize = true;
    std::string files_root;  ///< folder that ops may use; empty: none
    /// Settings of the communicator: the variables of the environment that are for it.
    std::map<std::string, std::string> communicator;
    int cpu_num = 1;
    int workers = 1;  ///< threads that run steps side by side; asynchronous jobs only
    /// Options of several devices; empty: there is one.
    DeviceSteps::Options devices;
  };

  explicit Trainer(int number) : number_(number) { stats_.trainer = number; }
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;
  virtual ~Trainer() = default;

  [[nodiscard]] virtual const Program& program() const = 0;
  /// Step to begin with: 0, unless servers took up snapshots or this trainer replaces a lost one.
  [[nodiscard]] virtual int64_t first_step() const { return 0; }
  /// True after an error of step() or finish() that going back mends.
  [[nodiscard]] virtual bool must_go_back() const { return false; }
  /// Goes back to the step of the servers' snapshots. \returns that step
  /// Errors: kDistributed where a server or this trainer has nothing left of it.
  virtual StatusOr<int64_t> go_back() {
    return Status(StatusCode::kDistributed, "this trainer cannot go back");
  }
  /// Runs one step; in federated training one round. \param results  by name; memory is used again
  virtual Status step(int64_t number, const executor::NamedValues& feeds,
                      const std::vector<std::string>& fetches, executor::NamedValues& results) = 0;
  /// One step of one of several workers; the same otherwise.
  /// Thread-safety: different workers at once.
  virtual Status worker_step(int /*worker*/, int64_t number, const executor::NamedValues& feeds,
                             const std::vector<std::string>& fetches,
                             executor::NamedValues& results) {
    return step(number, feeds, fetches, results);
  }
  /// A worker runs no more steps.
  virtual Status worker_leaves() { return Ok(); }
  [[nodiscard]] virtual int workers() const { return 1; }
  /// Notes where the time of later steps goes, and the first fetch where it is one number.
  /// \param trace  ops are noted there; may be null, else outlives the job
  virtual void keep_stats(ps::CallTrace* trace) = 0;
  [[nodiscard]] virtual TrainerStats stats() const = 0;
  /// Writes numbers about every step there; metrics outlives the job.
  void publish_to(ps::Metrics& metrics) {
    numbers_ = std::make_unique<TrainerNumbers>(metrics, number_);
  }

  /// What is kept of the job when all trainers are done. Files are written by trainer 0 alone.
  struct Ending {
    /// Receives parameters and optimizer state from the servers, by original name; null: nothing.
    executor::NamedValues* gather = nullptr;
    std::string params;                      ///< folder for files of the original; empty: none
    std::vector<std::string> save_programs;  ///< run instead of those made for what servers keep
    std::string model;                       ///< folder for an inference model; empty: none
    std::string model_program;               ///< file of the program before it was transpiled
    std::vector<std::string> model_feeds;
    std::vector<std::string> model_fetches;
    Replace replace = Replace::kNo;
  };
  /// Tells the servers that this trainer is done.
  virtual Status finish(const Tool& tool, const Ending& ending) = 0;

 protected:
  /// Errors: kUsage where the ending wants a model and does not say of which program.
  static Status need_model_program(const Ending& ending);
  /// Counts a step that is over. \param values  of the fetches  \param devices  that made them
  void count_step(const executor::NamedValues& feeds, const std::vector<std::string>& fetches,
                  llvm::ArrayRef<Value> values, double seconds, int devices);

  TrainerStats stats_;  ///< of the steps so far, without where their time went

 private:
  int number_;
  std::unique_ptr<TrainerNumbers> numbers_;  ///< null: nobody wants them
  std::mutex counting_;                      ///< guards stats_ while workers run
};

/// Opens a trainer of the kind that the files show: a FleetTrainer where `transpile-program
/// --fleet` has written them, else a TrainerJob. Errors: those of their open().
StatusOr<std::unique_ptr<Trainer>> open_trainer(const Tool& tool, const Trainer::Files& files,
                                                const PsFlags& flags,
                                                const Trainer::Settings& settings,
                                                std::shared_ptr<ps::Transport> transport);

}  // namespace millrace::tools
