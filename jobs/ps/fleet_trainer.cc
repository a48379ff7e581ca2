#include "jobs/ps/fleet_trainer.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "executor/feed_values.h"
#include "fleet/saving/worker_saver.h"
#include "framework/base/errors.h"
#include "framework/base/file.h"
#include "framework/read_program.h"
#include "io/lacking_vars.h"
#include "io/model_folder.h"
#include "io/params_manifest.h"
#include "io/paths.h"
#include "jobs/config/json_fields.h"
#include "jobs/ps/listed_tables.h"
#include "jobs/ps/save_place.h"
#include "ops/verify.h"
#include "ps/table/table_folder.h"

namespace millrace::jobs {
namespace {

using executor::NamedValues;

constexpr int64_t kMostScheduleBytes = 4096;

// Settings from the environment override those that were written with the job.
std::map<std::string, std::string> communicator_of(const FleetRole& role,
                                                   const Trainer::Settings& settings) {
  std::map<std::string, std::string> all = role.communicator;
  for (const auto& [key, value] : settings.communicator) all[key] = value;
  return all;
}

Status check_settings(const Trainer::Settings& settings) {
  if (settings.devices != nullptr) return Unimplemented("several settings.devices in a fleet job");
  return Ok();
}

Status check_role(const FleetRole& role, int trainer) {
  if (!role.is_server && role.index == trainer) return Ok();
  return Status(StatusCode::kUsage, fmt::format("trainer {}: found the folder of {} {}", trainer,
                                                role.is_server ? "server" : "trainer", role.index))
      .with_hint("give the number of this trainer with settings.trainer");
}

// Null in a job whose servers have the dense parameters.
StatusOr<std::shared_ptr<executor::Rings>> connect_ranks(const FleetRole& role,
                                                         const Trainer::Settings& settings) {
  if (!role.all_reduces_dense) return std::shared_ptr<executor::Rings>();
  if (settings.ranks == nullptr)
    return Unimplemented(
               "dense_gradients all_reduce: this way to run a trainer does not connect trainers "
               "with "
               "each other")
        .with_hint("use the tool run-program");
  return settings.ranks(role.trainer_endpoints, role.index, role.workers);
}

// True for a folder that trainers and servers of a job have saved together.
StatusOr<bool> is_saved_job(const std::string& params) {
  if (!io::is_folder(params)) return false;
  if (ps::has_tables(params)) return true;
  MILLRACE_ASSIGN_OR_RETURN(const auto part, find_listed_table(params));
  return part.has_value();
}

// The file with the steps of schedule.json, beside the folder of a saved job like its manifest.
std::string schedule_steps_path(std::string folder) {
  while (folder.size() > 1 && folder.ends_with('/')) folder.pop_back();
  return folder + ".schedule.json";
}

}  // namespace

StatusOr<std::unique_ptr<FleetTrainer>> FleetTrainer::open(
    const Files& files, const Settings& settings, std::shared_ptr<ps::Transport> transport) {
  MILLRACE_RETURN_IF_ERROR(check_settings(settings));
  MILLRACE_ASSIGN_OR_RETURN(FleetRole role,
                            read_fleet_role(files.program, files.startup, settings.reading));
  MILLRACE_RETURN_IF_ERROR(check_role(role, settings.trainer).in_file(files.program));
  std::unique_ptr<FleetTrainer> trainer(new FleetTrainer(settings, files.program, std::move(role)));
  const FleetRole& own = trainer->role_;
  const auto registry = ops::standard_registry();
  if (Status status = ops::check_program(*registry, *own.main); !status.ok())
    return std::move(status).in_file(files.program);
  fleet::WorkerSetup setup;
  setup.main = own.main.get();
  setup.startup = own.startup.get();
  setup.description = own.description;
  setup.mode = own.mode;
  setup.servers = own.servers;
  setup.worker = own.index;
  setup.workers = own.workers;
  setup.send = own.send;
  setup.dense_tables = own.dense_tables;
  setup.communicator = communicator_of(own, settings);
  setup.threads = settings.workers;
  setup.executor.threads = settings.threads;
  setup.executor.seed = settings.seed;
  setup.executor.optimize = settings.optimize;
  MILLRACE_ASSIGN_OR_RETURN(setup.executor.gpu, open_gpu(settings));
  setup.client = settings.client;
  setup.log = log_at(settings.log, LogLevel::kWarning);
  setup.scheduled_rate = own.scheduled_rate;
  MILLRACE_ASSIGN_OR_RETURN(setup.rings, connect_ranks(own, settings));
  StatusOr<std::unique_ptr<fleet::FleetWorker>> worker =
      fleet::FleetWorker::create(setup, std::move(transport));
  if (!worker.ok()) return std::move(worker).status().in_file(files.program);
  trainer->worker_ = *std::move(worker);
  if (!files.params.empty()) MILLRACE_RETURN_IF_ERROR(trainer->load_params(files.params));
  MILLRACE_ASSIGN_OR_RETURN(const bool loaded, is_saved_job(files.params));
  trainer->worker_->expect_loaded(loaded);
  if (loaded && own.rate_at) MILLRACE_RETURN_IF_ERROR(trainer->load_schedule(files.params));
  MILLRACE_RETURN_IF_ERROR(trainer->check_workers());
  MILLRACE_RETURN_IF_ERROR(trainer->worker_->start());
  if (const int64_t first = trainer->first_step(); first > 0)
    settings.log(LogLevel::kInfo,
                 fmt::format("trainer {} begins at step {}, the current step of its servers",
                             settings.trainer, first));
  MILLRACE_RETURN_IF_ERROR(trainer->prepare_workers());
  if (own.rate_at && !loaded) MILLRACE_RETURN_IF_ERROR(trainer->warn_of_loaded_servers());
  return trainer;
}

// The schedule of the program is warned of by FleetWorker.
Status FleetTrainer::warn_of_loaded_servers() {
  MILLRACE_ASSIGN_OR_RETURN(const auto answers, worker_->table_client().count_loaded());
  if (std::ranges::any_of(answers, [](const auto& each) { return each.count > 0; }))
    settings_.log(LogLevel::kWarning,
                  "the servers have loaded a saved job, this trainer has not: schedule.json begins "
                  "with the first step; load the same folder in trainers");
  return Ok();
}

Status FleetTrainer::load_schedule(const std::string& params) {
  const std::string path = schedule_steps_path(params);
  if (!io::may_exist(path)) {
    settings_.log(LogLevel::kWarning,
                  fmt::format("{} does not exist, which says how many steps the schedule of the "
                              "saved job has made: schedule.json begins with the first step",
                              path));
    return Ok();
  }
  MILLRACE_ASSIGN_OR_RETURN(const std::string text, read_file(path, kMostScheduleBytes));
  const auto json = parse_json_object(text);
  if (!json.ok()) return Status(json.status()).in_file(path);
  JsonFields fields(*json, "");
  fields.require("steps").whole("steps", schedule_before_);
  MILLRACE_RETURN_IF_ERROR(fields.finish().in_file(path));
  if (schedule_before_ >= 0) return Ok();
  return InvalidData("'steps': expected 0 or more, found {}", schedule_before_).in_file(path);
}

Status FleetTrainer::save_schedule(const std::string& params) {
  if (!role_.rate_at || settings_.trainer != 0) return Ok();
  MILLRACE_ASSIGN_OR_RETURN(const int64_t steps, worker_->schedule_step(worker_->next_step()));
  return write_file_atomically(schedule_steps_path(params),
                               fmt::format("{{\"steps\": {}}}\n", schedule_before_ + steps),
                               Replace::kYes);
}

StatusOr<int64_t> FleetTrainer::go_back() {
  MILLRACE_ASSIGN_OR_RETURN(const int64_t step, worker_->go_back());
  const auto done = static_cast<size_t>(std::max<int64_t>(0, step - first_step()));
  if (stats_.losses.size() > done) stats_.losses.resize(done);
  return step;
}

// The folder is given by the command, because a file of a job must not choose where this process
// writes.
Status FleetTrainer::add_dumps(DumpOptions& dump) const {
  if (role_.dump_fields.empty() && role_.dump_params.empty()) return Ok();
  if (dump.folder.empty())
    return Status(StatusCode::kUsage,
                  "the job dumps fields or params of its trainers: expected options.dump_folder")
        .with_hint("its fleet_opt.dump_fields_path is '" + role_.dump_path + "'");
  dump.fields.insert(dump.fields.end(), role_.dump_fields.begin(), role_.dump_fields.end());
  dump.params.insert(dump.params.end(), role_.dump_params.begin(), role_.dump_params.end());
  return Ok();
}

// Rows of embeddings are skipped, because servers load them from the same file. In geo mode they
// are not: each worker has them whole, and worker 0 sends the initial values to the servers.
Status FleetTrainer::load_params(const std::string& path) {
  std::set<std::string> embeddings;
  if (worker_->tables() != nullptr && role_.mode != ps::CommMode::kGeo) {
    for (const auto& [id, entry] : worker_->tables()->all()) embeddings.insert(entry.table.param);
  }
  io::ParamValues values;
  if (io::is_folder(path)) {
    const std::vector<io::ParamSpec> specs = fleet::saved_vars(*worker_);
    MILLRACE_RETURN_IF_ERROR(io::check_folder(path, io::names_of(specs), io::CheckFiles::kBytes));
    MILLRACE_ASSIGN_OR_RETURN(values,
                              io::load_separate(path, specs, {.threads = settings_.threads}));
  } else {
    MILLRACE_ASSIGN_OR_RETURN(values, io::read_parameters(path, *role_.main));
    std::vector<std::string> kept = io::kept_vars(path, *role_.main, worker_->scope());
    std::erase_if(kept, [&](const std::string& name) { return embeddings.contains(name); });
    if (!kept.empty()) settings_.log(LogLevel::kWarning, io::lacking_warning(path, kept));
  }
  for (auto& [name, value] : values) {
    if (!embeddings.contains(name)) worker_->scope().local(name) = std::move(value);
  }
  return Ok();
}

Status FleetTrainer::step(int64_t number, const NamedValues& feeds,
                          const std::vector<std::string>& fetches, NamedValues& results) {
  return counted_step({number, name_, feeds, fetches}, results, [&](std::vector<Value>& values) {
    const Status status = step_rate(number, feeds);
    return status.ok() ? worker_->step(feeds, fetches, values) : status;
  });
}

Status FleetTrainer::check_workers() const {
  if (settings_.workers == 1) return Ok();
  if (role_.all_reduces_dense)
    return Unimplemented("settings.workers above 1 with dense_gradients all_reduce");
  const bool is_async = role_.mode == ps::CommMode::kAsync;
  if (!is_async)
    return Unimplemented("settings.workers above 1 in a {} fleet job",
                         role_.mode == ps::CommMode::kGeo ? "geo" : "synchronous")
        .with_hint("worker threads are for asynchronous jobs");
  if (worker_->has_schedule())
    return Unimplemented(
        "settings.workers above 1 in a fleet job whose learning rate is not a constant");
  return Ok();
}

Status FleetTrainer::prepare_workers() {
  if (settings_.workers == 1) return Ok();
  const auto prepare = [&](int worker, Scope& scope) {
    return worker_->prepare_thread(worker, settings_.workers, scope);
  };
  MILLRACE_ASSIGN_OR_RETURN(
      workers_, TrainerWorkers::create(settings_.workers, worker_->program(), worker_->scope(),
                                       &worker_->communicator(), prepare));
  return Ok();
}

Status FleetTrainer::worker_step(int worker, int64_t number, const NamedValues& feeds,
                                 const std::vector<std::string>& fetches, NamedValues& results) {
  return counted_step({number, name_, feeds, fetches}, results, [&](std::vector<Value>& values) {
    Status status = worker_->check_feeds(feeds);
    return status.ok() ? workers_->run(worker, feeds, fetches, values) : status;
  });
}

// A fed rate overrides the one of the schedule.
Status FleetTrainer::step_rate(int64_t number, const NamedValues& feeds) {
  const std::string& rate = worker_->scheduled_rate();
  if (rate.empty() || feeds.contains(rate)) return Ok();
  if (role_.rate_at) {
    MILLRACE_ASSIGN_OR_RETURN(const int64_t step, worker_->schedule_step(number));
    return worker_->set_rate(role_.rate_at(schedule_before_ + step));
  }
  if (role_.mode == ps::CommMode::kGeo) return Ok();  // in geo jobs the rate may stay constant
  return InvalidArgument(
             "the learning rate '{}' must be set in every step, but it is neither fed nor given by "
             "a schedule.json in the folder of the program",
             rate)
      .with_hint("feed '" + rate + "' in every step, or run transpile-program again");
}

void FleetTrainer::keep_stats(ps::CallTrace* trace) {
  if (workers_ != nullptr) return workers_->observe(trace);
  clock_.note_ops(trace);
  worker_->observe(&clock_);
}

TrainerStats FleetTrainer::stats() const {
  return timed_stats(clock_, worker_->waited_seconds());
}

// The dense parameters as last received from the servers, or with their state where trainers keep
// them, and all rows that the program declares.
Status FleetTrainer::gather(NamedValues& values) {
  for (const auto& [table, names] : role_.dense_tables) {
    for (const std::string& name : names)
      MILLRACE_RETURN_IF_ERROR(executor::copy_value(*worker_->scope().find(name), values[name]));
  }
  if (role_.all_reduces_dense) {
    for (const io::ParamSpec& spec : fleet::saved_vars(*worker_)) {
      const Value* const value = worker_->scope().find(spec.name);
      if (value != nullptr && value->initialized())
        MILLRACE_RETURN_IF_ERROR(executor::copy_value(*value, values[spec.name]));
    }
  }
  if (worker_->tables() == nullptr) return Ok();
  for (const auto& [id, entry] : worker_->tables()->all()) {
    MILLRACE_ASSIGN_OR_RETURN(values[entry.table.param], worker_->tables()->gather(entry));
  }
  return Ok();
}

Status FleetTrainer::finish(const Ending& ending) {
  if (workers_ != nullptr) MILLRACE_RETURN_IF_ERROR(workers_->finish());
  const bool saves = writes_files(ending);
  if (ending.gather == nullptr && !saves) return worker_->stop();
  if (!ending.save_programs.empty())
    return Unimplemented(
        "ending.save_programs of a fleet job: its servers hold no vars of programs");
  MILLRACE_RETURN_IF_ERROR(worker_->wait_for_all());
  if (ending.gather != nullptr) MILLRACE_RETURN_IF_ERROR(gather(*ending.gather));
  MILLRACE_RETURN_IF_ERROR(save(ending));
  return worker_->stop();
}

Status FleetTrainer::wait_for_all() {
  if (workers_ != nullptr) MILLRACE_RETURN_IF_ERROR(workers_->finish());
  return worker_->wait_for_all();
}

Status FleetTrainer::save(const Ending& ending) {
  if (!writes_files(ending)) return Ok();
  MILLRACE_RETURN_IF_ERROR(executor::bring_home(worker_->scope()));
  const auto target_of = [&](const std::string& path) -> StatusOr<fleet::FleetSaveTarget> {
    MILLRACE_ASSIGN_OR_RETURN(const ps::DistributedSaveOptions place,
                              save_place(path, root_of(ending, settings_)));
    return fleet::FleetSaveTarget{place.root, place.folder, ending.replace, 0};
  };
  if (!ending.params.empty()) {
    MILLRACE_ASSIGN_OR_RETURN(const fleet::FleetSaveTarget target, target_of(ending.params));
    MILLRACE_RETURN_IF_ERROR(fleet::save_worker_persistables(*worker_, target));
    MILLRACE_ASSIGN_OR_RETURN(const std::string folder, io::path_below(target.root, target.folder));
    MILLRACE_RETURN_IF_ERROR(save_schedule(folder));
  }
  if (ending.model.empty()) return Ok();
  MILLRACE_RETURN_IF_ERROR(need_model_program(ending));
  MILLRACE_ASSIGN_OR_RETURN(const auto origin,
                            read_program(ending.model_program, settings_.reading));
  MILLRACE_ASSIGN_OR_RETURN(const fleet::FleetSaveTarget target, target_of(ending.model));
  return fleet::save_worker_model(*worker_, target, *origin, ending.model_feeds,
                                  ending.model_fetches);
}

}  // namespace millrace::jobs
