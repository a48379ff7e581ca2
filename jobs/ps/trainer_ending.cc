#include <utility>

#include "executor/standard_runtime.h"
#include "fleet/saving/fleet_saver.h"
#include "framework/read_program.h"
#include "jobs/ps/save_place.h"
#include "jobs/ps/trainer_job.h"
#include "ops/read_checked_program.h"
#include "ps/client/gather.h"
#include "ps/saving/distributed_save.h"

// The end of a TrainerJob: what is gathered from the servers and saved.
namespace millrace::jobs {

using executor::NamedValues;

Status TrainerJob::need_slices() const {
  if (slices_) return Ok();
  return {StatusCode::kUsage,
          "saving the values of servers needs the job's slices.json: expected files.slices"};
}

Status TrainerJob::wait_for_all() {
  if (communicator_ != nullptr) MILLRACE_RETURN_IF_ERROR(communicator_->stop());
  if (workers_ != nullptr) MILLRACE_RETURN_IF_ERROR(workers_->finish());
  MILLRACE_RETURN_IF_ERROR(executor::bring_home(scope_));
  MILLRACE_RETURN_IF_ERROR(client_->complete(/*stay=*/true));
  // what other trainers have sent since this one received parameters
  return communicator_ != nullptr ? communicator_->recv(scope_) : Ok();
}

Status TrainerJob::finish(const Ending& ending) {
  if (communicator_ != nullptr) MILLRACE_RETURN_IF_ERROR(communicator_->stop());
  if (workers_ != nullptr) MILLRACE_RETURN_IF_ERROR(workers_->finish());
  MILLRACE_RETURN_IF_ERROR(executor::bring_home(scope_));
  const bool saves = writes_files(ending);
  if (ending.gather == nullptr && !saves) return client_->complete(/*stay=*/false);
  MILLRACE_RETURN_IF_ERROR(need_slices());
  MILLRACE_RETURN_IF_ERROR(client_->complete(/*stay=*/true));
  if (ending.gather != nullptr) {
    MILLRACE_ASSIGN_OR_RETURN(*ending.gather, ps::gather_vars(*client_, *slices_, settings_.log));
    MILLRACE_RETURN_IF_ERROR(gather_tables(*ending.gather));
    MILLRACE_RETURN_IF_ERROR(ps::add_held_vars(saving_trainer(), *ending.gather));
  }
  MILLRACE_RETURN_IF_ERROR(save(ending));
  return client_->complete(/*stay=*/false);
}

Status TrainerJob::gather_tables(NamedValues& values) {
  if (tables_ == nullptr) return Ok();
  for (const auto& [id, entry] : tables_->all()) {
    MILLRACE_ASSIGN_OR_RETURN(values[entry.table.param], tables_->gather(entry));
  }
  return Ok();
}

ps::SavingTrainer TrainerJob::saving_trainer() {
  ps::SavingTrainer trainer;
  trainer.link = link_;
  trainer.slices = &*slices_;
  trainer.program = program_.get();
  trainer.scope = &scope_;
  trainer.trainer = settings_.trainer;
  trainer.tables = tables_.get();
  trainer.options.threads = settings_.threads;
  return trainer;
}

// Saves like the original's fleet object for transpiled jobs.
Status TrainerJob::save(const Ending& ending) {
  if (!writes_files(ending)) return Ok();
  MILLRACE_RETURN_IF_ERROR(need_slices());
  MILLRACE_RETURN_IF_ERROR(executor::bring_home(scope_));
  fleet::SavedJob job;
  job.form = fleet::FleetClass::kTranspiler;
  job.trainer = saving_trainer();
  const fleet::FleetSaver saver(job);
  const std::string& root = root_of(ending, settings_);
  const executor::Executor executor(executor::standard_runtime(root), job.trainer.options);
  if (!ending.params.empty())
    MILLRACE_RETURN_IF_ERROR(save_params(ending, job.trainer, saver, executor));
  if (ending.model.empty()) return Ok();
  MILLRACE_RETURN_IF_ERROR(need_model_program(ending));
  MILLRACE_ASSIGN_OR_RETURN(const auto origin,
                            read_program(ending.model_program, settings_.reading));
  job.origin = origin.get();
  MILLRACE_ASSIGN_OR_RETURN(const ps::DistributedSaveOptions place, save_place(ending.model, root));
  return saver.save_inference_model(&executor, {place.root, place.folder, ending.replace, 0},
                                    ending.model_feeds, ending.model_fetches);
}

Status TrainerJob::save_params(const Ending& ending, const ps::SavingTrainer& trainer,
                               const fleet::FleetSaver& saver,
                               const executor::Executor& executor) const {
  MILLRACE_ASSIGN_OR_RETURN(ps::DistributedSaveOptions options,
                            save_place(ending.params, root_of(ending, settings_)));
  options.replace = ending.replace;
  if (ending.save_programs.empty())
    return saver.save_persistables(&executor, {options.root, options.folder, options.replace, 0});
  std::vector<std::unique_ptr<Program>> programs;
  for (const std::string& path : ending.save_programs) {
    MILLRACE_ASSIGN_OR_RETURN(std::unique_ptr<Program> program,
                              ops::read_checked_program(*runtime_->ops, path, settings_.reading));
    options.programs.push_back(programs.emplace_back(std::move(program)).get());
  }
  return ps::save_distributed_persistables(trainer, options);
}

}  // namespace millrace::jobs
