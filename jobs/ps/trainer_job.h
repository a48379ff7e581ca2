#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <llvm/ADT/STLFunctionalExtras.h>

#include "executor/executor.h"
#include "executor/gpu/kept_places.h"
#include "fleet/runtime/local_state.h"
#include "fleet/saving/fleet_saver.h"
#include "framework/program.h"
#include "framework/tensor/scope.h"
#include "jobs/ps/device_steps.h"
#include "jobs/ps/trainer.h"
#include "jobs/ps/trainer_workers.h"
#include "jobs/stats/trainer_stats.h"
#include "ps/client/trainer_link.h"
#include "ps/communicator/communicator.h"
#include "ps/table/trainer_tables.h"
#include "transpiler/distribute/slices_json.h"

namespace millrace::jobs {

/// One trainer of a parameter-server job: its program, its variables, and its connection to the
/// servers.
class TrainerJob final : public Trainer {
 public:
  /// Reads programs, runs the startup program, which fetches values from the servers, loads
  /// parameters and compiles. Errors: those of readers, the startup program and compilation.
  static StatusOr<std::unique_ptr<TrainerJob>> open(const Files& files, const Settings& settings,
                                                    std::shared_ptr<ps::Transport> transport);

  [[nodiscard]] const Program& program() const override { return *program_; }
  [[nodiscard]] const Value* find(const std::string& name) const override {
    return scope_.find(name);
  }
  [[nodiscard]] const executor::GpuOps* gpu() const override {
    return prepared_ == nullptr ? nullptr : prepared_->gpu();
  }
  [[nodiscard]] int64_t first_step() const override { return first_step_; }
  [[nodiscard]] bool must_go_back() const override { return client_->must_settle(); }
  StatusOr<int64_t> go_back() override;
  Status step(int64_t number, const executor::NamedValues& feeds,
              const std::vector<std::string>& fetches, executor::NamedValues& results) override;
  /// Requires Settings::workers above 1.
  Status worker_step(int worker, int64_t number, const executor::NamedValues& feeds,
                     const std::vector<std::string>& fetches,
                     executor::NamedValues& results) override;
  void keep_stats(ps::CallTrace* trace) override;
  [[nodiscard]] TrainerStats stats() const override;
  Status save(const Ending& ending) override;
  Status wait_for_all() override;
  Status finish(const Ending& ending) override;
  Status barrier(ps::CommBarrier kind) override;
  Status load_model(llvm::ArrayRef<const Program*> servers, const std::string& folder) override;
  Status end_day() override;

 private:
  explicit TrainerJob(const Settings& settings) : Trainer(settings.trainer), settings_(settings) {}
  Status read_job(const Files& files, std::shared_ptr<ps::Transport> transport);
  Status connect_to_servers();
  Status load(const Files& files, const executor::Executor& executor);
  /// Runs the startup program, and fetches sparse tables that it only declares.
  Status run_startup();
  Status load_folder(const std::string& folder);
  /// Loads the persistable vars of the program from their files, but for those that are left out.
  Status load_but(const std::string& folder,
                  llvm::function_ref<bool(const std::string& name)> leaves_out);
  Status load_params(const std::string& path);
  ps::SavingTrainer saving_trainer();
  /// Prepares the additional programs of a federated trainer, which are next to its main program.
  Status prepare_rounds(const Files& files, const executor::Executor& executor);
  /// Sends and receives what the communicator exchanges between two steps.
  Status finish_step();
  Status make_communicator();
  Status set_plan(const Files& files);
  Status prepare_steps(const Files& files, const std::shared_ptr<const executor::Runtime>& runtime,
                       const executor::ExecutorOptions& options);
  Status prepare_workers(const std::shared_ptr<const executor::Runtime>& runtime,
                         const executor::ExecutorOptions& options);
  [[nodiscard]] int device_count() const {
    return devices_ == nullptr ? 1 : devices_->devices().device_count();
  }
  [[nodiscard]] Status check_feeds(const executor::NamedValues& feeds) const;
  Status gather_tables(executor::NamedValues& values);
  Status send_model(llvm::ArrayRef<const Program*> servers, const std::string& folder);
  Status load_own(const std::string& folder);
  Status fetch_parameters();
  [[nodiscard]] Status need_slices() const;
  Status save_params(const Ending& ending, const ps::SavingTrainer& trainer,
                     const fleet::FleetSaver& saver, const executor::Executor& executor) const;
  StatusOr<std::unique_ptr<ps::Communicator>> communicator_of(ps::Remarks& remarks);

  std::string name_;
  Settings settings_;
  std::optional<transpiler::SlicesFile> slices_;
  std::set<std::string> on_servers_;  ///< vars that only servers change
  std::shared_ptr<ps::Client> client_;
  std::shared_ptr<ps::TrainerTables> tables_;  ///< null: the job has no typed tables
  std::shared_ptr<ps::TrainerLink> link_;
  std::shared_ptr<const executor::Runtime> runtime_;
  std::unique_ptr<Program> program_;
  std::unique_ptr<Program> startup_program_;
  std::set<std::string> fetched_;  ///< vars that have values of servers after the startup program
  Scope scope_;
  std::unique_ptr<executor::PreparedProgram> startup_;  ///< null: there is no startup program
  std::optional<fleet::LocalState> local_;              ///< absent: the trainer cannot go back
  int64_t first_step_ = 0;
  std::unique_ptr<executor::PreparedProgram> before_;    ///< federated: fetches; else null
  std::unique_ptr<executor::PreparedProgram> prepared_;  ///< null: workers or devices run it
  std::unique_ptr<DeviceSteps> devices_;                 ///< null: there is one device
  /// On a GPU: where the parameters are that the communicator receives. Null: no GPU.
  std::unique_ptr<executor::KeptPlaces> places_;
  TransferClock clock_;
  std::unique_ptr<executor::PreparedProgram> after_;  ///< federated: sends; else null
  std::unique_ptr<ps::Communicator> communicator_;    ///< null: ops send and receive
};

}  // namespace millrace::jobs
