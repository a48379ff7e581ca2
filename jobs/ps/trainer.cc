#include "jobs/ps/trainer.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include "executor/gpu/open_device.h"
#include "jobs/ps/fleet_role.h"
#include "jobs/ps/fleet_trainer.h"
#include "jobs/ps/trainer_job.h"
#include "jobs/stats/step_facts.h"

namespace millrace::jobs {

void Trainer::count_step(const executor::NamedValues& feeds,
                         const std::vector<std::string>& fetches, llvm::ArrayRef<Value> values,
                         double seconds, int devices) {
  const std::lock_guard lock(counting_);
  const int64_t batch = batch_of(feeds);
  stats_.seconds += seconds;
  ++stats_.steps;
  stats_.examples += batch;
  if (numbers_ != nullptr) numbers_->count_step(batch, seconds, stats());
  const std::optional<double> loss =
      values.empty() ? std::nullopt : loss_of(values.front(), devices);
  if (!loss) return;
  if (numbers_ != nullptr) numbers_->show_loss(*loss);
  stats_.loss_name = fetches.front();
  stats_.losses.push_back(*loss);
}

Status Trainer::counted_step(const Step& step, executor::NamedValues& results,
                             const std::function<Status(std::vector<Value>&)>& run) {
  const auto start = std::chrono::steady_clock::now();
  std::vector<Value> values;
  values.reserve(step.fetches.size());
  for (const std::string& name : step.fetches) values.push_back(std::move(results[name]));
  if (Status status = run(values); !status.ok())
    return std::move(status).in_file(step.file).with_note("in step " + std::to_string(step.number));
  const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start;
  count_step(step.feeds, step.fetches, values, passed.count(), step.devices);
  for (size_t i = 0; i < step.fetches.size(); ++i) results[step.fetches[i]] = std::move(values[i]);
  return Ok();
}

StatusOr<int64_t> Trainer::go_back_until_settled() {
  while (true) {
    StatusOr<int64_t> step = go_back();
    if (step.ok() || !must_go_back()) return step;
  }
}

void Trainer::workers_join() {
  if (workers_ != nullptr) workers_->join();
}

Status Trainer::worker_leaves() {
  return workers_ == nullptr ? Ok() : workers_->leave();
}

TrainerStats Trainer::timed_stats(const TransferClock& clock, double waited) const {
  TrainerStats stats = stats_;
  stats.send_seconds = workers_ != nullptr ? workers_->send_seconds() : clock.send_seconds();
  stats.wait_seconds =
      workers_ != nullptr ? workers_->wait_seconds() : clock.wait_seconds() + waited;
  stats.compute_seconds = std::max(0.0, stats.seconds - stats.send_seconds - stats.wait_seconds);
  return stats;
}

StatusOr<std::shared_ptr<gpu::Context>> Trainer::open_gpu(const Settings& settings) {
  if (settings.device == "cpu") return std::shared_ptr<gpu::Context>();
  if (settings.workers > 1)
    return Unimplemented("settings.workers above 1 with settings.device {}", settings.device);
  MILLRACE_ASSIGN_OR_RETURN(std::shared_ptr<gpu::Context> context,
                            executor::open_device(settings.device, {}));
  for (const std::string& library : context->device().info().missing)
    settings.log(LogLevel::kWarning,
                 "plain loops replace a library that is missing, slowly: " + library);
  return context;
}

Status Trainer::need_model_program(const Ending& ending) {
  if (!ending.model_program.empty()) return Ok();
  return {StatusCode::kUsage,
          "ending.model: expected ending.model_program with the program before transpilation"};
}

StatusOr<std::unique_ptr<Trainer>> open_trainer(const Trainer::Files& files,
                                                const Trainer::Settings& settings,
                                                std::shared_ptr<ps::Transport> transport) {
  std::unique_ptr<Trainer> trainer;
  if (is_fleet_role(files.program)) {
    MILLRACE_ASSIGN_OR_RETURN(trainer, FleetTrainer::open(files, settings, std::move(transport)));
  } else {
    MILLRACE_ASSIGN_OR_RETURN(trainer, TrainerJob::open(files, settings, std::move(transport)));
  }
  return trainer;
}

Status read_communicator_settings(const std::vector<std::string>& environment,
                                  Trainer::Settings& settings) {
  for (const std::string& entry : environment) {
    const auto [name, value] = llvm::StringRef(entry).split('=');
    if (name.startswith("FLAGS_communicator_")) settings.communicator[name.str()] = value.str();
    if (name == "CPU_NUM" && (value.getAsInteger(10, settings.cpu_num) || settings.cpu_num < 1)) {
      return {StatusCode::kUsage,
              "CPU_NUM in the environment is '" + value.str() + "', expected a number above 0"};
    }
  }
  return Ok();
}

}  // namespace millrace::jobs
