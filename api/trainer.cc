#include "api/trainer.h"

#include <utility>

#include "api/internals.h"
#include "executor/array_values.h"
#include "executor/feed_targets.h"
#include "framework/base/errors.h"
#include "jobs/config/slices_file.h"
#include "jobs/ps/trainer.h"

namespace millrace::api {
namespace {

Status check_trainer_options(const TrainerOptions& options) {
  const std::pair<const char*, int> counts[] = {
      {"threads", options.threads}, {"cpu_num", options.cpu_num}, {"workers", options.workers}};
  for (const auto& [name, count] : counts) {
    if (count < 1) return InvalidArgument("options.{}: expected at least 1, found {}", name, count);
  }
  if (options.trainer < 0)
    return InvalidArgument("options.trainer: expected at least 0, found {}", options.trainer);
  if (options.devices && options.devices->build_strategy.num_trainers > 1)
    return Unimplemented("devices.build_strategy.num_trainers of a trainer of parameter servers");
  return Ok();
}

jobs::Trainer::Settings trainer_settings_of(const TrainerOptions& options,
                                            const Connection& connection) {
  jobs::Trainer::Settings settings;
  settings.trainer = options.trainer;
  settings.threads = options.threads;
  settings.seed = options.seed;
  settings.optimize = options.optimize;
  settings.files_root = options.files_root;
  settings.communicator = options.communicator;
  settings.cpu_num = options.cpu_num;
  settings.workers = options.workers;
  settings.client =
      Internals::client(connection, options.trainer, options.deadline, options.heartbeat);
  settings.log = sink_of(options.log);
  if (!options.devices) return settings;
  settings.devices = [devices = *options.devices, seed = options.seed,
                      optimize = options.optimize](const Program&) {
    executor::ParallelOptions parallel;
    parallel.devices = devices.devices;
    parallel.loss_name = devices.loss_name;
    parallel.exec_strategy = devices.exec_strategy;
    parallel.build_strategy = devices.build_strategy;
    parallel.split = devices.split;
    parallel.seed = seed;
    parallel.optimize = optimize;
    return StatusOr<executor::ParallelOptions>(std::move(parallel));
  };
  return settings;
}

jobs::Trainer::Ending ending_of(const TrainerEnding& ending) {
  jobs::Trainer::Ending to;
  to.params = ending.params;
  to.save_programs = ending.save_programs;
  to.model = ending.model;
  to.model_program = ending.model_program;
  to.model_feeds = ending.model_feeds;
  to.model_fetches = ending.model_fetches;
  to.replace = ending.replace ? Replace::kYes : Replace::kNo;
  return to;
}

}  // namespace

struct Trainer::Parts {
  std::unique_ptr<jobs::Trainer> trainer;
  int64_t next = 0;
  bool finished = false;

  // \param by_workers  the call is one for worker threads
  [[nodiscard]] Status may(const char* call, bool by_workers) const {
    if (finished) return InvalidArgument("{}: the trainer has finished", call);
    if (by_workers == (trainer->workers() > 1)) return Ok();
    return InvalidArgument("{}: the trainer has {} workers, call {}", call, trainer->workers(),
                           by_workers ? "step()" : "worker_step()");
  }
};

Trainer::Trainer(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
Trainer::Trainer(Trainer&&) noexcept = default;
Trainer& Trainer::operator=(Trainer&&) noexcept = default;
Trainer::~Trainer() = default;

StatusOr<Trainer> Trainer::open(const RoleFiles& files, const Connection& connection,
                                const TrainerOptions& options) {
  MILLRACE_RETURN_IF_ERROR(check_trainer_options(options));
  if (!files.load_program.empty())
    return InvalidArgument("files.load_program: only servers run one");
  const jobs::Trainer::Files input{files.program, files.startup,
                                   jobs::find_slices(files.slices, files.program), files.params};
  auto parts = std::make_unique<Parts>();
  MILLRACE_ASSIGN_OR_RETURN(parts->trainer,
                            jobs::open_trainer(input, trainer_settings_of(options, connection),
                                               Internals::state(connection).transport));
  parts->trainer->keep_stats(nullptr);
  parts->next = parts->trainer->first_step();
  return Trainer(std::move(parts));
}

int64_t Trainer::next_step() const {
  return parts_->next;
}

StatusOr<Arrays> Trainer::step(const Arrays& feeds, const std::vector<std::string>& fetches) {
  MILLRACE_RETURN_IF_ERROR(parts_->may("step", /*by_workers=*/false));
  executor::NamedValues values;
  executor::NamedValues results;
  MILLRACE_RETURN_IF_ERROR(executor::check_each_feed(parts_->trainer->program(), feeds));
  MILLRACE_RETURN_IF_ERROR(executor::to_values(feeds, values));
  MILLRACE_RETURN_IF_ERROR(parts_->trainer->step(parts_->next, values, fetches, results));
  ++parts_->next;
  return executor::to_arrays(results);
}

StatusOr<EpochResult> Trainer::train_from_dataset(Dataset& dataset, const EpochOptions& options) {
  if (parts_->finished) return InvalidArgument("train_from_dataset: the trainer has finished");
  jobs::Trainer& trainer = *parts_->trainer;
  const bool has_workers = trainer.workers() > 1;
  const int64_t first = parts_->next - options.first_batch;
  const auto one = [&](int worker, int64_t batch, const executor::NamedValues& feeds,
                       const std::vector<std::string>& fetches,
                       std::vector<Value>& results) -> Status {
    executor::NamedValues named;
    for (size_t i = 0; i < fetches.size(); ++i) named[fetches[i]] = std::move(results[i]);
    MILLRACE_RETURN_IF_ERROR(has_workers
                                 ? trainer.worker_step(worker, first + batch, feeds, fetches, named)
                                 : trainer.step(parts_->next, feeds, fetches, named));
    if (!has_workers) ++parts_->next;
    for (size_t i = 0; i < fetches.size(); ++i) results[i] = std::move(named[fetches[i]]);
    return Ok();
  };
  if (!has_workers) return run_over(dataset, options, one, {});
  trainer.workers_join();
  StatusOr<EpochResult> result = run_over(
      dataset, options, one,
      {.count = trainer.workers(), .leave = [&trainer] { return trainer.worker_leaves(); }});
  if (result.ok()) parts_->next += result->batches;
  return result;
}

StatusOr<Arrays> Trainer::worker_step(int worker, int64_t number, const Arrays& feeds,
                                      const std::vector<std::string>& fetches) {
  MILLRACE_RETURN_IF_ERROR(parts_->may("worker_step", /*by_workers=*/true));
  if (worker < 0 || worker >= parts_->trainer->workers())
    return InvalidArgument("worker {}: expected one of {} workers", worker,
                           parts_->trainer->workers());
  executor::NamedValues values;
  executor::NamedValues results;
  MILLRACE_RETURN_IF_ERROR(executor::check_each_feed(parts_->trainer->program(), feeds));
  MILLRACE_RETURN_IF_ERROR(executor::to_values(feeds, values));
  MILLRACE_RETURN_IF_ERROR(parts_->trainer->worker_step(worker, number, values, fetches, results));
  return executor::to_arrays(results);
}

Status Trainer::worker_leaves() {
  MILLRACE_RETURN_IF_ERROR(parts_->may("worker_leaves", /*by_workers=*/true));
  return parts_->trainer->worker_leaves();
}
bool Trainer::must_go_back() const {
  return parts_->trainer->must_go_back();
}

Status Trainer::go_back() {
  MILLRACE_ASSIGN_OR_RETURN(parts_->next, parts_->trainer->go_back_until_settled());
  parts_->finished = false;
  return Ok();
}

TrainerStats Trainer::stats() const {
  jobs::TrainerStats from = parts_->trainer->stats();
  TrainerStats stats;
  stats.loss_name = std::move(from.loss_name);
  stats.losses = std::move(from.losses);
  stats.steps = from.steps;
  stats.examples = from.examples;
  stats.seconds = from.seconds;
  stats.compute_seconds = from.compute_seconds;
  stats.send_seconds = from.send_seconds;
  stats.wait_seconds = from.wait_seconds;
  return stats;
}

StatusOr<Arrays> Trainer::finish(const TrainerEnding& ending) {
  if (std::exchange(parts_->finished, true))
    return InvalidArgument("finish: the trainer has finished");
  executor::NamedValues gathered;
  jobs::Trainer::Ending how = ending_of(ending);
  if (ending.gather) how.gather = &gathered;
  MILLRACE_RETURN_IF_ERROR(parts_->trainer->finish(how));
  return executor::to_arrays(gathered);
}

}  // namespace millrace::api
