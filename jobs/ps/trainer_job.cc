#include "jobs/ps/trainer_job.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "executor/parallel/replica.h"
#include "executor/standard_runtime.h"
#include "framework/base/errors.h"
#include "framework/op_attrs.h"
#include "framework/read_program.h"
#include "io/lacking_vars.h"
#include "io/model_folder.h"
#include "io/paths.h"
#include "jobs/config/distribution_facts.h"
#include "jobs/config/slices_file.h"
#include "jobs/config/typed_tables.h"
#include "ops/read_checked_program.h"
#include "ps/client/connect.h"
#include "ps/client/gather.h"
#include "ps/client/link_sender.h"
#include "ps/ops/trainer_ops.h"
#include "ps/server/load_slices.h"
#include "transpiler/distribute/slices_json.h"

namespace millrace::jobs {
namespace {

using Clock = std::chrono::steady_clock;

using executor::NamedValues;

// Interval between log lines about servers that cannot be reached yet.
constexpr std::chrono::seconds kReportInterval{10};

bool has_half_barrier(const Program& program) {
  for (const Op& op : program.root().ops()) {
    if (op.type() == "send_barrier" && get_attr_or(op, "half_async", false)) return true;
  }
  return false;
}

ps::CommContexts geo_contexts(const transpiler::GeoFacts& geo) {
  ps::CommContexts contexts;
  for (const transpiler::GeoVar& var : geo.vars) {
    ps::CommContext& context = contexts[var.origin];
    context.var_name = var.origin;
    context.split_varnames = var.var_names;
    context.split_endpoints = var.epmap;
    context.sections = var.sections;
    context.is_sparse = var.is_sparse;
  }
  return contexts;
}

// Empty for geo and federated jobs, whose trainers update their parameters themselves.
std::set<std::string> kept_by_servers(const transpiler::SlicesFile& slices) {
  std::set<std::string> names;
  if (slices.properties.geo) return names;
  for (const transpiler::DistributedVar& var : slices.overview.vars())
    names.insert(var.origin.name);
  names.insert(slices.properties.rates.begin(), slices.properties.rates.end());
  names.insert(slices.properties.schedule.begin(), slices.properties.schedule.end());
  return names;
}

}  // namespace

StatusOr<std::unique_ptr<TrainerJob>> TrainerJob::open(const Files& files, const Settings& settings,
                                                       std::shared_ptr<ps::Transport> transport) {
  std::unique_ptr<TrainerJob> job(new TrainerJob(settings));
  MILLRACE_RETURN_IF_ERROR(job->read_job(files, std::move(transport)));
  const auto runtime = executor::make_runtime(settings.files_root);
  ps::add_trainer_controls(runtime->controls, job->link_, settings.files_root);
  job->runtime_ = runtime;
  MILLRACE_ASSIGN_OR_RETURN(
      job->program_, ops::read_checked_program(*runtime->ops, files.program, settings.reading));
  ps::name_pushed_gradients(*job->program_);
  MILLRACE_RETURN_IF_ERROR(job->set_plan(files));
  executor::ExecutorOptions how;
  how.threads = settings.threads;
  how.seed = settings.seed;
  how.optimize = settings.optimize;
  const executor::Executor executor(runtime, how);  // of the startup program
  MILLRACE_ASSIGN_OR_RETURN(how.gpu, open_gpu(settings));
  if (how.gpu != nullptr) job->places_ = std::make_unique<executor::KeptPlaces>(how.gpu);
  if (job->slices_) job->local_.emplace(*job->program_, *job->slices_);
  MILLRACE_RETURN_IF_ERROR(job->connect_to_servers());
  MILLRACE_ASSIGN_OR_RETURN(job->first_step_, job->client_->settle());
  if (job->first_step_ > 0)
    settings.log(LogLevel::kInfo,
                 fmt::format("trainer {} begins at step {}, the current step of its servers",
                             settings.trainer, job->first_step_));
  MILLRACE_RETURN_IF_ERROR(job->load(files, executor));
  MILLRACE_RETURN_IF_ERROR(job->make_communicator());
  MILLRACE_RETURN_IF_ERROR(job->prepare_rounds(files, executor::Executor(runtime, how)));
  if (Status status = job->prepare_steps(files, runtime, how); !status.ok())
    return std::move(status).in_file(files.program);
  return job;
}

// Reads what the job holds on its servers, and makes the connections to them.
Status TrainerJob::read_job(const Files& files, std::shared_ptr<ps::Transport> transport) {
  name_ = files.program;
  if (!files.slices.empty()) {
    MILLRACE_ASSIGN_OR_RETURN(slices_, read_slices(files.slices));
    on_servers_ = kept_by_servers(*slices_);
  }
  ps::ClientOptions options = settings_.client;
  options.trainer = settings_.trainer;
  client_ = std::make_shared<ps::Client>(std::move(transport), options);
  link_ = std::make_shared<ps::TrainerLink>(client_);
  MILLRACE_ASSIGN_OR_RETURN(std::vector<ps::TypedTable> tables, read_typed_tables(files.slices));
  if (tables.empty()) return Ok();
  MILLRACE_ASSIGN_OR_RETURN(tables_, ps::TrainerTables::create(client_, std::move(tables)));
  link_->set_tables(tables_);
  return Ok();
}

// Servers of another distribution refuse this trainer.
Status TrainerJob::set_plan(const Files& files) {
  std::map<std::string, ps::PlanFacts> plan = ps::facts_of_program(*program_);
  if (slices_) {
    MILLRACE_ASSIGN_OR_RETURN(const auto tables, read_typed_tables(files.slices));
    const std::vector<std::string>& servers = slices_->properties.endpoints;
    for (size_t i = 0; i < servers.size(); ++i) {
      ps::PlanFacts facts = distribution_facts(*slices_, tables, i);
      ps::PlanFacts& all = plan[servers[i]];
      std::move(facts.begin(), facts.end(), std::back_inserter(all));
    }
  }
  client_->set_plan(std::move(plan));
  client_->set_heter_workers(ps::heter_workers_named_in(*program_));
  return Ok();
}

Status TrainerJob::prepare_steps(const Files& files,
                                 const std::shared_ptr<const executor::Runtime>& runtime,
                                 const executor::ExecutorOptions& options) {
  const bool is_geo = slices_ && slices_->properties.geo;
  if (settings_.workers > 1) return prepare_workers(runtime, options);
  if (settings_.devices == nullptr) {
    MILLRACE_ASSIGN_OR_RETURN(prepared_,
                              executor::Executor(runtime, options).prepare(*program_, scope_));
    return Ok();
  }
  if (is_geo || before_ != nullptr)
    return Unimplemented(
        "settings.devices above 1 with a {} trainer, which updates its own parameters",
        is_geo ? "geo" : "federated");
  if (!ps::heter_workers_named_in(*program_).empty())
    return Unimplemented("settings.devices above 1 with a trainer that calls heter workers");
  MILLRACE_ASSIGN_OR_RETURN(
      devices_, DeviceSteps::create(runtime, executor::Executor(runtime, options), *program_,
                                    scope_, settings_.devices, options.threads));
  for (const std::string& remark : devices_->devices().remarks())
    settings_.log(LogLevel::kInfo, fmt::format("{}: {}", files.program, remark));
  return Ok();
}

Status TrainerJob::prepare_workers(const std::shared_ptr<const executor::Runtime>& runtime,
                                   const executor::ExecutorOptions& options) {
  if (settings_.devices != nullptr)
    return {StatusCode::kUsage, "expected only one of settings.workers and settings.devices"};
  const std::vector<std::string> servers = client_->endpoints();
  if (servers.empty()) return {StatusCode::kUsage, "settings.workers: the job has no servers"};
  MILLRACE_ASSIGN_OR_RETURN(const ps::ServerMode mode, client_->mode_of(servers.front()));
  const bool is_geo = slices_ && slices_->properties.geo;
  const bool is_sync = mode == ps::ServerMode::kSync;
  if (is_sync || is_geo || before_ != nullptr)
    return Unimplemented("settings.workers above 1 in a {} job", is_sync  ? "synchronous"
                                                                 : is_geo ? "geo"
                                                                          : "federated")
        .with_hint(
            "worker threads are for asynchronous jobs; settings.devices cpu:N splits the batches "
            "of "
            "synchronous ones");
  const auto prepare = [&](int worker, Scope& scope) {
    executor::ExecutorOptions own = options;
    own.threads = std::max(1, options.threads / settings_.workers);
    own.seed += static_cast<uint64_t>(worker) * executor::kSeedStep;
    return executor::Executor(runtime, own).prepare(*program_, scope);
  };
  MILLRACE_ASSIGN_OR_RETURN(workers_, TrainerWorkers::create(settings_.workers, *program_, scope_,
                                                             communicator_.get(), prepare));
  return Ok();
}

// Servers and heter workers expect every trainer, including one whose program sends them nothing.
Status TrainerJob::connect_to_servers() {
  std::vector<std::string> servers = ps::servers_named_in(*program_);
  if (slices_) {
    const std::vector<std::string>& all = slices_->properties.endpoints;
    servers.insert(servers.end(), all.begin(), all.end());
  }
  const std::set<std::string> workers = ps::heter_workers_named_in(*program_);
  servers.insert(servers.end(), workers.begin(), workers.end());
  std::sort(servers.begin(), servers.end());
  servers.erase(std::unique(servers.begin(), servers.end()), servers.end());
  if (ps::find_serve_op(*program_).ok())
    return InvalidProgram("expected the program of a trainer, found that of a server")
        .in_file(name_);
  // programs of federated trainers call servers in files of their own
  const std::filesystem::path folder = std::filesystem::path(name_).parent_path();
  if (servers.empty() && !io::may_exist((folder / "__recv__").string())) {
    return InvalidProgram("the program calls no servers: expected that of a trainer in a job")
        .in_file(name_)
        .with_hint(
            "transpile-program writes the programs of a job; one of before it is run without "
            "a role");
  }
  return ps::connect_to_servers(*client_, servers, kReportInterval,
                                log_at(settings_.log, LogLevel::kWarning));
}

Status TrainerJob::prepare_rounds(const Files& files, const executor::Executor& executor) {
  const std::filesystem::path folder = std::filesystem::path(files.program).parent_path();
  for (const auto& [name, target] : {std::pair("__recv__", &before_), {"__send__", &after_}}) {
    const std::string path = (folder / name).string();
    if (!io::may_exist(path)) continue;
    MILLRACE_ASSIGN_OR_RETURN(const std::unique_ptr<Program> program,
                              ops::read_checked_program(*runtime_->ops, path, settings_.reading));
    StatusOr<std::unique_ptr<executor::PreparedProgram>> prepared =
        executor.prepare(*program, scope_);
    if (!prepared.ok()) return std::move(prepared).status().in_file(path);
    *target = *std::move(prepared);
  }
  return Ok();
}

// Programs that are split at run time, and geo programs, send through a communicator.
StatusOr<std::unique_ptr<ps::Communicator>> TrainerJob::communicator_of(ps::Remarks& remarks) {
  auto sender = std::make_shared<ps::LinkSender>(client_);
  const bool is_geo = slices_ && slices_->properties.geo;
  const int steps = is_geo ? static_cast<int>(slices_->properties.geo->push_nums) : 1;
  const ps::CommMode mode = is_geo                        ? ps::CommMode::kGeo
                            : has_half_barrier(*program_) ? ps::CommMode::kHalfAsync
                                                          : ps::CommMode::kAsync;
  const int threads = settings_.workers > 1 ? settings_.workers : settings_.cpu_num;
  MILLRACE_ASSIGN_OR_RETURN(
      ps::CommunicatorOptions options,
      ps::communicator_options(mode, settings_.communicator, threads, steps, remarks));
  options.trainer_id = settings_.trainer;
  options.cpu_num = settings_.workers;  // number of threads that barriers wait for
  if (!is_geo) return ps::Communicator::of_program(*program_, options, std::move(sender));
  const transpiler::GeoFacts& geo = *slices_->properties.geo;
  options.trainers = static_cast<int>(geo.trainers);
  return ps::Communicator::of_program(*program_, static_cast<int>(mode), geo_contexts(geo),
                                      options.trainers, steps, options, std::move(sender));
}

Status TrainerJob::make_communicator() {
  const bool is_geo = slices_ && slices_->properties.geo;
  if (!is_geo) {
    MILLRACE_ASSIGN_OR_RETURN(const ps::CommContexts contexts, ps::send_contexts_of(*program_));
    if (contexts.empty()) return Ok();
    // A synchronous server merges the gradients; the ops then stay in step with it.
    MILLRACE_ASSIGN_OR_RETURN(const ps::ServerMode mode,
                              client_->mode_of(contexts.begin()->second.split_endpoints.front()));
    if (mode == ps::ServerMode::kSync) return Ok();
  }
  ps::Remarks remarks;
  MILLRACE_ASSIGN_OR_RETURN(communicator_, communicator_of(remarks));
  for (const std::string& remark : remarks) settings_.log(LogLevel::kWarning, remark);
  link_->set_communicator(communicator_.get());
  return communicator_->start(&scope_);
}

Status TrainerJob::load(const Files& files, const executor::Executor& executor) {
  if (!files.startup.empty()) {
    MILLRACE_ASSIGN_OR_RETURN(
        startup_program_,
        ops::read_checked_program(*runtime_->ops, files.startup, settings_.reading));
    MILLRACE_ASSIGN_OR_RETURN(startup_, executor.prepare(*startup_program_, scope_));
    Status status = run_startup();
    // other trainers may need to begin at an older step than this trainer found
    while (!status.ok() && client_->must_settle()) {
      link_->forget();
      MILLRACE_ASSIGN_OR_RETURN(first_step_, client_->settle());
      status = run_startup();
    }
    if (!status.ok()) return std::move(status).in_file(files.startup);
  }
  return files.params.empty() ? Ok() : load_params(files.params);
}

// The startup program only declares sparse tables (fake_init). A trainer that looks rows up in its
// own copy, which it receives after every step, needs the rows before its first step.
Status TrainerJob::run_startup() {
  std::vector<Value> none;
  MILLRACE_RETURN_IF_ERROR(startup_->run({}, {}, none));
  fetched_ = fleet::received_by(*startup_program_);
  if (!slices_) return Ok();
  std::vector<std::string> tables;
  for (const Op& op : startup_program_->root().ops()) {
    if (op.type() != "fake_init") continue;
    for (const llvm::StringRef name : op.output("Out"))
      if (program_->root().has_writers(name)) tables.push_back(name.str());
  }
  if (tables.empty()) return Ok();
  MILLRACE_ASSIGN_OR_RETURN(auto values,
                            ps::gather_vars(*client_, *slices_, tables, settings_.log));
  for (auto& [name, value] : values) scope_.local(name) = std::move(value);
  fetched_.insert(tables.begin(), tables.end());
  return Ok();
}

// Values of servers are not overwritten: they may have been trained already, and servers that were
// given other parameters keep theirs.
Status TrainerJob::load_params(const std::string& path) {
  std::map<std::string, Value> of_servers;
  std::set<std::string> names = fetched_;
  if (first_step_ > 0 && local_) names.insert(local_->remote().begin(), local_->remote().end());
  for (const std::string& name : names) {
    Value* const value = scope_.find(name);
    if (value != nullptr && value->initialized()) of_servers[name] = std::move(*value);
  }
  const bool in_files = slices_ && io::is_folder(path);
  MILLRACE_RETURN_IF_ERROR(in_files ? load_folder(path)
                                    : io::load_parameters(path, *program_, scope_));
  const std::vector<std::string> kept = io::kept_vars(path, *program_, scope_);
  if (!kept.empty()) settings_.log(LogLevel::kWarning, io::lacking_warning(path, kept));
  const std::vector<std::string> others = fleet::put_back(std::move(of_servers), scope_);
  if (others.empty()) return Ok();
  // those of asynchronous servers may have moved since the job began
  MILLRACE_ASSIGN_OR_RETURN(const ps::ServerMode mode,
                            client_->mode_of(client_->endpoints().front()));
  if (first_step_ == 0 && mode == ps::ServerMode::kSync)
    settings_.log(LogLevel::kWarning,
                  fmt::format("{} has other values for '{}'{} than the servers, whose values count",
                              path, others.front(),
                              others.size() == 1 ? std::string()
                                                 : fmt::format(" and {} more", others.size() - 1)));
  return Ok();
}

// Values that only servers hold are fetched from them: the trainer may have no file for a table or
// for optimizer state.
Status TrainerJob::load_folder(const std::string& folder) {
  std::set<std::string> kept{slices_->properties.distributed_lookup_table};
  if (tables_ != nullptr) {
    for (const auto& [id, entry] : tables_->all()) kept.insert(entry.table.param);
  }
  for (const transpiler::DistributedVar& var : slices_->overview.vars())
    if (var.vtype != "Param") kept.insert(var.origin.name);
  return load_but(folder, [&](const std::string& name) { return kept.contains(name); });
}

Status TrainerJob::load_but(const std::string& folder,
                            llvm::function_ref<bool(const std::string& name)> leaves_out) {
  std::vector<io::ParamSpec> specs = io::persistables_of(*program_);
  std::erase_if(specs, [&](const io::ParamSpec& spec) { return leaves_out(spec.name); });
  if (specs.empty()) return Ok();
  MILLRACE_ASSIGN_OR_RETURN(io::ParamValues values,
                            io::load_separate(folder, specs, {.threads = settings_.threads}));
  for (auto& [name, value] : values) scope_.local(name) = std::move(value);
  return Ok();
}

StatusOr<int64_t> TrainerJob::go_back() {
  if (!local_ || startup_ == nullptr || before_ != nullptr || communicator_ != nullptr)
    return Status(StatusCode::kDistributed,
                  "a server restarted at an older step, and this trainer cannot go back")
        .with_hint(
            "going back needs the startup program and slices.json; federated trainers cannot do "
            "it");
  link_->forget();
  MILLRACE_RETURN_IF_ERROR(executor::bring_home(scope_));
  MILLRACE_ASSIGN_OR_RETURN(const int64_t step, client_->settle());
  MILLRACE_ASSIGN_OR_RETURN(auto rest, local_->copy(scope_));
  MILLRACE_RETURN_IF_ERROR(run_startup());  // fetches the parameters
  MILLRACE_RETURN_IF_ERROR(local_->restore(step, std::move(rest), scope_));
  if (devices_ != nullptr) MILLRACE_RETURN_IF_ERROR(devices_->share_all());
  const auto done = static_cast<size_t>(std::max<int64_t>(0, step - first_step_));
  if (stats_.losses.size() > done) stats_.losses.resize(done);
  return step;
}

// A feed of such a var would have no effect, or would be overwritten by the next received
// parameters.
Status TrainerJob::check_feeds(const NamedValues& feeds) const {
  for (const auto& [name, value] : feeds) {
    if (!on_servers_.contains(name)) continue;
    return InvalidArgument("feed: '{}' is held by the servers, so a feed has no effect on it", name)
        .in_file(name_)
        .with_hint(
            "learning rates can be fed only in fleet jobs; in other jobs ops of the program "
            "compute them");
  }
  return Ok();
}

Status TrainerJob::step(int64_t number, const NamedValues& feeds,
                        const std::vector<std::string>& fetches, NamedValues& results) {
  MILLRACE_RETURN_IF_ERROR(check_feeds(feeds));
  client_->set_step(number);
  if (local_ && communicator_ == nullptr) MILLRACE_RETURN_IF_ERROR(local_->keep(number, scope_));
  const auto start = Clock::now();
  std::vector<Value> values;
  values.reserve(fetches.size());
  for (const std::string& name : fetches) values.push_back(std::move(results[name]));
  std::vector<Value> none;
  Status status = before_ != nullptr ? before_->run({}, {}, none) : Ok();
  if (status.ok()) {
    status = devices_ != nullptr ? devices_->run(feeds, fetches, values)
                                 : prepared_->run(feeds, fetches, values);
  }
  if (status.ok() && after_ != nullptr) status = after_->run({}, {}, none);
  if (status.ok()) status = link_->finish_step();
  if (!status.ok()) {
    link_->forget();
    return std::move(status).in_file(name_).with_note("in step " + std::to_string(number));
  }
  if (communicator_ != nullptr) MILLRACE_RETURN_IF_ERROR(finish_step());
  count_step(feeds, fetches, values, std::chrono::duration<double>(Clock::now() - start).count(),
             device_count());
  for (size_t i = 0; i < fetches.size(); ++i) results[fetches[i]] = std::move(values[i]);
  return Ok();
}

Status TrainerJob::finish_step() {
  MILLRACE_RETURN_IF_ERROR(communicator_->barrier());
  if (places_ != nullptr) {
    for (const auto& [key, context] : communicator_->receive_contexts()) {
      for (const std::string& name : context.vars()) {
        if (Value* const value = scope_.find(name)) places_->note(*value, name);
      }
    }
  }
  MILLRACE_RETURN_IF_ERROR(communicator_->finish_step(scope_));
  if (places_ != nullptr) MILLRACE_RETURN_IF_ERROR(places_->settle());
  return devices_ == nullptr ? Ok() : devices_->share_all();
}

Status TrainerJob::worker_step(int worker, int64_t number, const NamedValues& feeds,
                               const std::vector<std::string>& fetches, NamedValues& results) {
  MILLRACE_RETURN_IF_ERROR(check_feeds(feeds));
  client_->set_step(number);
  return counted_step(
      {number, name_, feeds, fetches, device_count()}, results,
      [&](std::vector<Value>& values) { return workers_->run(worker, feeds, fetches, values); });
}

void TrainerJob::keep_stats(ps::CallTrace* trace) {
  if (workers_ != nullptr) return workers_->observe(trace);
  clock_.note_ops(trace);
  (devices_ != nullptr ? devices_->transfer() : *prepared_).observe(&clock_);
}

TrainerStats TrainerJob::stats() const {
  return timed_stats(clock_);
}

}  // namespace millrace::jobs
