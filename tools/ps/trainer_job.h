#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "executor/executor.h"
#include "framework/base/file.h"
#include "framework/program.h"
#include "framework/tensor/scope.h"
#include "ps/client/trainer_link.h"
#include "ps/communicator/communicator.h"
#include "ps/table/trainer_tables.h"
#include "tools/common/tool.h"
#include "tools/ps/device_steps.h"
#include "tools/ps/flags.h"
#include "tools/ps/local_state.h"
#include "tools/ps/trainer_numbers.h"
#include "tools/ps/trainer_stats.h"
#include "tools/ps/trainer_workers.h"
#include "transpiler/distribute/slices_json.h"

namespace millrace::tools {

/// One trainer of a parameter-server job: its program, its variables, and its way to the servers.
class TrainerJob {
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
  /// Reads programs, runs the startup program, which fetches from the servers, loads parameters and
  /// compiles. Errors: those of readers, the startup program and compilation.
  static StatusOr<std::unique_ptr<TrainerJob>> open(const Tool& tool, const Files& files,
                                                    const PsFlags& flags, const Settings& settings,
                                                    std::shared_ptr<ps::Transport> transport);

  [[nodiscard]] const Program& program() const { return *program_; }
  /// Step to begin with: 0, unless servers took up snapshots or this trainer replaces a lost one.
  [[nodiscard]] int64_t first_step() const { return first_step_; }
  /// True after an error of step() or finish() that going back mends.
  [[nodiscard]] bool must_go_back() const { return client_->must_settle(); }
  /// Goes back to the step of the servers' snapshots. \returns that step
  /// Errors: kDistributed where a server or this trainer has nothing left of it.
  StatusOr<int64_t> go_back();
  /// Runs one step; in federated training one round. \param results  by name; memory is used again
  Status step(int64_t number, const executor::NamedValues& feeds,
              const std::vector<std::string>& fetches, executor::NamedValues& results);
  /// One step of one of several workers (Settings::workers); the same otherwise.
  /// Thread-safety: different workers at once.
  Status worker_step(int worker, int64_t number, const executor::NamedValues& feeds,
                     const std::vector<std::string>& fetches, executor::NamedValues& results);
  /// A worker runs no more steps.
  Status worker_leaves() { return workers_->leave(); }
  [[nodiscard]] int workers() const { return workers_ == nullptr ? 1 : workers_->count(); }
  /// Notes where the time of later steps goes, and the first fetch where it is one number.
  /// \param trace  ops are noted there; may be null, else outlives the job
  void keep_stats(ps::CallTrace* trace = nullptr);
  [[nodiscard]] TrainerStats stats() const;
  /// Writes numbers about every step there; metrics outlives the job.
  void publish_to(ps::Metrics& metrics);
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
  Status finish(const Tool& tool, const Ending& ending);

 private:
  TrainerJob() = default;
  Status meet_servers(const Tool& tool);
  Status load(const Tool& tool, const Files& files, const executor::Executor& executor);
  Status load_folder(const std::string& folder);
  Status load_params(const std::string& path);
  /// Programs of a federated trainer that stand beside its main one.
  Status prepare_rounds(const Tool& tool, const Files& files, const executor::Executor& executor);
  Status make_communicator(const Tool& tool, const Settings& settings);
  Status prepare_steps(const Tool& tool, const Files& files,
                       const std::shared_ptr<const executor::Runtime>& runtime,
                       const executor::ExecutorOptions& options);
  Status prepare_workers(const std::shared_ptr<const executor::Runtime>& runtime,
                         const executor::ExecutorOptions& options);
  /// What every step is counted with. \param values  of the fetches
  void count_step(const executor::NamedValues& feeds, const std::vector<std::string>& fetches,
                  llvm::ArrayRef<Value> values, double seconds);
  Status gather_tables(executor::NamedValues& values);
  Status save(const Tool& tool, const Ending& ending);
  StatusOr<std::unique_ptr<ps::Communicator>> communicator_of(const Settings& settings,
                                                              ps::Remarks& remarks);

  std::string name_;
  Settings settings_;
  std::optional<transpiler::SlicesFile> slices_;
  std::shared_ptr<ps::Client> client_;
  std::shared_ptr<ps::TrainerTables> tables_;  ///< null: the job has no typed tables
  std::shared_ptr<ps::TrainerLink> link_;
  std::unique_ptr<Program> program_;
  std::unique_ptr<Program> startup_program_;
  Scope scope_;
  std::unique_ptr<executor::PreparedProgram> startup_;  ///< null: there is none
  std::optional<LocalState> local_;                     ///< absent: the trainer cannot go back
  int64_t first_step_ = 0;
  std::unique_ptr<executor::PreparedProgram> before_;    ///< federated: fetches; else null
  std::unique_ptr<executor::PreparedProgram> prepared_;  ///< null: workers or devices have it
  std::unique_ptr<TrainerWorkers> workers_;              ///< null: there is one
  std::unique_ptr<DeviceSteps> devices_;                 ///< null: there is one
  TransferClock clock_;
  std::unique_ptr<TrainerNumbers> numbers_;  ///< null: nobody wants them
  std::mutex counting_;                      ///< guards stats_ while workers run
  TrainerStats stats_;
  std::unique_ptr<executor::PreparedProgram> after_;  ///< federated: sends; else null
  std::unique_ptr<ps::Communicator> communicator_;    ///< null: ops send and receive themselves
};

/// What the environment says for communicators: FLAGS_communicator_*, and the number of threads in
/// CPU_NUM (1 if there is none). Errors: kUsage for a CPU_NUM that is no number above 0.
Status read_communicator_settings(TrainerJob::Settings& settings);

}  // namespace millrace::tools
