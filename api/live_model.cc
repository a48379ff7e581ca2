#include "api/live_model.h"

#include <utility>

#include "api/internals.h"
#include "executor/array_values.h"
#include "executor/executor.h"
#include "executor/feed_targets.h"
#include "executor/inference_model.h"
#include "executor/standard_runtime.h"
#include "framework/base/errors.h"
#include "framework/program.h"
#include "jobs/config/slices_file.h"
#include "jobs/config/typed_tables.h"
#include "jobs/ps/fleet_role.h"
#include "ops/read_checked_program.h"
#include "ps/client/connect.h"
#include "ps/ops/trainer_ops.h"
#include "ps/table/trainer_tables.h"

namespace millrace::api {
namespace {

constexpr std::chrono::seconds kLogInterval{10};

Status check_live_options(const RoleFiles& files, const LiveModelOptions& options) {
  if (options.threads < 1)
    return InvalidArgument("options.threads: expected at least 1, found {}", options.threads);
  if (options.trainer < 0)
    return InvalidArgument("options.trainer: expected at least 0, found {}", options.trainer);
  if (!files.params.empty() || !files.load_program.empty())
    return InvalidArgument("files: params and load_program must be empty, the servers have them");
  if (files.startup.empty())
    return InvalidArgument(
        "files.startup: expected the program that fetches the parameters, found none");
  if (jobs::is_fleet_role(files.program))
    return Unimplemented("a live model of a job of the fleet API");
  return Ok();
}

}  // namespace

struct LiveModel::Parts {
  std::shared_ptr<ps::Client> client;
  std::shared_ptr<ps::TrainerLink> link;
  millrace::Scope vars;
  std::unique_ptr<executor::PreparedProgram> fetching;  ///< the startup program
  std::unique_ptr<executor::PreparedProgram> model;
  executor::NamedValues feeds;
  std::vector<Value> results;
  bool closed = false;

  [[nodiscard]] Status may(const char* call) const {
    return closed ? InvalidArgument("{}: the model was closed", call) : Ok();
  }
  /// \param slices  path of slices.json; may be empty
  Status connect(const Program& program, const std::string& slices, const LogSink& log);
  Status fetch() {
    std::vector<Value> none;
    return fetching->run({}, {}, none);
  }
  Status infer(const executor::NamedValues& given, const std::vector<std::string>& fetches,
               std::vector<Value>& to) {
    Status status = model->run(given, fetches, to);
    if (!status.ok()) link->forget();
    return status;
  }
};

Status LiveModel::Parts::connect(const Program& program, const std::string& slices,
                                 const LogSink& log) {
  if (!slices.empty()) {
    MILLRACE_ASSIGN_OR_RETURN(const transpiler::SlicesFile job, jobs::read_slices(slices));
    if (job.properties.geo) return Unimplemented("a live model of a geo job");
    MILLRACE_ASSIGN_OR_RETURN(std::vector<ps::TypedTable> tables, jobs::read_typed_tables(slices));
    if (!tables.empty()) {
      MILLRACE_ASSIGN_OR_RETURN(auto views, ps::TrainerTables::create(client, std::move(tables)));
      link->set_tables(std::move(views));
    }
  }
  client->set_plan(ps::facts_of_program(program));
  const std::vector<std::string> servers = ps::servers_named_in(program);
  if (servers.empty()) return InvalidProgram("the program names no servers");
  MILLRACE_RETURN_IF_ERROR(
      ps::connect_to_servers(*client, servers, kLogInterval, log_at(log, LogLevel::kWarning)));
  MILLRACE_ASSIGN_OR_RETURN(const ps::ServerMode mode, client->mode_of(servers.front()));
  if (mode != ps::ServerMode::kAsync)
    return Unimplemented("a live model of a job that is not asynchronous (its servers are {})",
                         ps::server_mode_name(mode));
  return Ok();
}

LiveModel::LiveModel(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
LiveModel::LiveModel(LiveModel&&) noexcept = default;
LiveModel& LiveModel::operator=(LiveModel&&) noexcept = default;
LiveModel::~LiveModel() = default;

StatusOr<LiveModel> LiveModel::open(const RoleFiles& files, const std::vector<std::string>& inputs,
                                    const std::vector<std::string>& outputs,
                                    const Connection& connection, const LiveModelOptions& options) {
  MILLRACE_RETURN_IF_ERROR(check_live_options(files, options));
  auto parts = std::make_unique<Parts>();
  parts->client = std::make_shared<ps::Client>(
      Internals::state(connection).transport,
      Internals::client(connection, options.trainer, options.deadline, options.heartbeat));
  parts->link = std::make_shared<ps::TrainerLink>(parts->client);
  const auto runtime = executor::make_runtime();
  ps::add_trainer_controls(runtime->controls, parts->link, {});
  MILLRACE_ASSIGN_OR_RETURN(const std::unique_ptr<Program> program,
                            ops::read_checked_program(*runtime->ops, files.program, {}));
  MILLRACE_ASSIGN_OR_RETURN(std::unique_ptr<Program> startup,
                            ops::read_checked_program(*runtime->ops, files.startup, {}));
  MILLRACE_ASSIGN_OR_RETURN(
      std::unique_ptr<Program> model,
      executor::make_inference_program(*program, *runtime->ops, inputs, outputs));
  executor::ExecutorOptions how;
  how.threads = options.threads;
  how.optimize = options.optimize;
  const executor::Executor runner(runtime, how);
  MILLRACE_ASSIGN_OR_RETURN(parts->fetching, runner.prepare(std::move(startup), parts->vars));
  Status status = parts->connect(*program, jobs::find_slices(files.slices, files.program),
                                 sink_of(options.log));
  if (status.ok()) status = parts->fetch();
  if (status.ok()) {
    auto prepared = runner.prepare(std::move(model), parts->vars);
    if (prepared.ok()) parts->model = *std::move(prepared);
    status = std::move(prepared).status();
  }
  if (status.ok()) return LiveModel(std::move(parts));
  // The servers must not wait for this trainer; the first error is the one to report.
  static_cast<void>(parts->client->complete(/*stay=*/false));
  return std::move(status).in_file(files.program);
}

StatusOr<Arrays> LiveModel::run(const Arrays& feeds) {
  MILLRACE_RETURN_IF_ERROR(parts_->may("run"));
  MILLRACE_RETURN_IF_ERROR(executor::check_each_feed(parts_->model->given(), feeds));
  MILLRACE_RETURN_IF_ERROR(executor::to_values(feeds, parts_->feeds));
  const std::vector<std::string>& wanted = parts_->model->fetch_targets();
  MILLRACE_RETURN_IF_ERROR(parts_->infer(parts_->feeds, wanted, parts_->results));
  return executor::to_arrays(wanted, parts_->results);
}

StatusOr<EpochResult> LiveModel::infer_from_dataset(Dataset& dataset, const EpochOptions& options) {
  MILLRACE_RETURN_IF_ERROR(parts_->may("infer_from_dataset"));
  return run_over(
      dataset, options,
      [this](const executor::NamedValues& feeds, const std::vector<std::string>& fetches,
             std::vector<Value>& results) { return parts_->infer(feeds, fetches, results); });
}

Status LiveModel::refresh() {
  MILLRACE_RETURN_IF_ERROR(parts_->may("refresh"));
  Status status = parts_->fetch();
  if (!status.ok()) parts_->link->forget();
  return status;
}

Status LiveModel::close() {
  MILLRACE_RETURN_IF_ERROR(parts_->may("close"));
  parts_->closed = true;
  return parts_->client->complete(/*stay=*/false);
}

}  // namespace millrace::api
