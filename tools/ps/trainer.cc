#include "tools/ps/trainer.h"

#include <optional>

#include "tools/ps/fleet_role.h"
#include "tools/ps/fleet_trainer.h"
#include "tools/ps/step_facts.h"
#include "tools/ps/trainer_job.h"

namespace millrace::tools {

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

Status Trainer::need_model_program(const Ending& ending) {
  if (!ending.model_program.empty()) return Ok();
  return {StatusCode::kUsage,
          "--save-model: expected --model-program with the program before transpilation"};
}

StatusOr<std::unique_ptr<Trainer>> open_trainer(const Tool& tool, const Trainer::Files& files,
                                                const PsFlags& flags,
                                                const Trainer::Settings& settings,
                                                std::shared_ptr<ps::Transport> transport) {
  std::unique_ptr<Trainer> trainer;
  if (is_fleet_role(files.program)) {
    MILLRACE_ASSIGN_OR_RETURN(
        trainer, FleetTrainer::open(tool, files, flags, settings, std::move(transport)));
  } else {
    MILLRACE_ASSIGN_OR_RETURN(trainer,
                              TrainerJob::open(tool, files, flags, settings, std::move(transport)));
  }
  return trainer;
}

}  // namespace millrace::tools
