#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fleet/runtime/fleet_worker.h"
#include "jobs/ps/fleet_role.h"
#include "jobs/ps/trainer.h"

namespace millrace::jobs {

/// A worker of a job that was written by `transpile-program --fleet`: its servers hold only typed
/// tables.
class FleetTrainer final : public Trainer {
 public:
  /// Reads the folder, runs the startup program, loads parameters, connects to the servers, and
  /// sends the dense parameters to them or receives them.
  /// Errors: kUsage for the folder of another trainer; kUnimplemented for several devices, or for
  /// worker threads unless the job is asynchronous and its rate a constant, or for a job that
  /// averages dense gradients without settings.ranks; those of read_fleet_role() and FleetWorker.
  static StatusOr<std::unique_ptr<FleetTrainer>> open(const Files& files, const Settings& settings,
                                                      std::shared_ptr<ps::Transport> transport);

  [[nodiscard]] const Program& program() const override { return *role_.main; }
  [[nodiscard]] int trainers() const override { return role_.workers; }
  [[nodiscard]] executor::CollectiveGroup* ranks() const override { return worker_->group(); }
  [[nodiscard]] const executor::GpuOps* gpu() const override { return worker_->gpu(); }
  Status add_dumps(DumpOptions& dump) const override;
  [[nodiscard]] int64_t first_step() const override { return worker_->first_step(); }
  [[nodiscard]] bool must_go_back() const override { return worker_->must_go_back(); }
  StatusOr<int64_t> go_back() override;
  Status step(int64_t number, const executor::NamedValues& feeds,
              const std::vector<std::string>& fetches, executor::NamedValues& results) override;
  void keep_stats(ps::CallTrace* trace) override;
  [[nodiscard]] TrainerStats stats() const override;
  /// No worker may train meanwhile.
  Status save(const Ending& ending) override;
  Status wait_for_all() override;
  Status finish(const Ending& ending) override;
  [[nodiscard]] const Value* find(const std::string& name) const override {
    return worker_->scope().find(name);
  }
  /// Requires Settings::workers above 1: threads of an asynchronous job.
  Status worker_step(int worker, int64_t number, const executor::NamedValues& feeds,
                     const std::vector<std::string>& fetches,
                     executor::NamedValues& results) override;

 private:
  FleetTrainer(Settings settings, std::string name, FleetRole role)
      : Trainer(settings.trainer),
        settings_(std::move(settings)),
        name_(std::move(name)),
        role_(std::move(role)) {}
  [[nodiscard]] Status check_workers() const;
  Status prepare_workers();
  Status load_params(const std::string& path);
  Status step_rate(int64_t number, const executor::NamedValues& feeds);
  /// The steps that schedule.json has made are in a file beside the folder of a saved job.
  Status load_schedule(const std::string& params);
  Status save_schedule(const std::string& params);
  Status warn_of_loaded_servers();
  Status gather(executor::NamedValues& values);

  Settings settings_;
  std::string name_;  ///< the program's file, for messages
  FleetRole role_;
  std::unique_ptr<fleet::FleetWorker> worker_;
  int64_t schedule_before_ = 0;  ///< steps of schedule.json that earlier runs of the job have made
  TransferClock clock_;
};

}  // namespace millrace::jobs
