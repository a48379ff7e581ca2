#include "tools/ps/server_job.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <utility>

#include "executor/standard_runtime.h"
#include "framework/base/errors.h"
#include "framework/base/file.h"
#include "framework/op_attrs.h"
#include "io/npz.h"
#include "io/params.h"
#include "io/params_manifest.h"
#include "ops/verify.h"
#include "ps/kill_points.h"
#include "ps/saving/distributed_load.h"
#include "ps/server/load_slices.h"
#include "ps/table/routing.h"
#include "tools/common/program_options.h"
#include "tools/ps/fleet_role.h"
#include "tools/ps/typed_tables.h"
#include "transpiler/distribute/slices_json.h"

namespace millrace::tools {
namespace {

constexpr int64_t kMostSlicesBytes = int64_t{1} << 30;

ps::ServerOptions server_options(const Tool& tool, const PsFlags& flags, int threads,
                                 const std::string& files_root) {
  ps::ServerOptions options;
  options.job = flags.job;
  options.threads = threads;
  options.seed = tool.common().seed;
  options.start_timeout = std::chrono::milliseconds(flags.start_timeout_ms);
  options.silence_timeout = std::chrono::milliseconds(flags.silence_timeout_ms);
  options.dc_lambda = flags.dc_lambda;
  options.elastic = flags.elastic;
  options.files_root = files_root;
  options.snapshot_root = flags.snapshot_dir;
  options.snapshot_every = flags.snapshot_every;
  options.snapshot_interval = std::chrono::milliseconds(flags.snapshot_interval_ms);
  options.snapshot_durable = flags.snapshot_durable;
  options.log = [&tool](const std::string& line) { tool.log(LogLevel::kInfo, line); };
  return options;
}

}  // namespace

std::string find_slices(const std::string& named, const std::string& program) {
  if (!named.empty()) return named;
  const std::filesystem::path beside =
      std::filesystem::path(program).parent_path().parent_path() / "slices.json";
  return std::filesystem::exists(beside) ? beside.string() : std::string();
}

StatusOr<std::unique_ptr<ServerJob>> ServerJob::open(const Tool& tool, const Files& files,
                                                     const PsFlags& flags, int threads,
                                                     std::shared_ptr<ps::Transport> transport,
                                                     const std::string& files_root) {
  std::unique_ptr<ServerJob> job(new ServerJob());
  job->name_ = files.program;
  ps::ServerOptions options = server_options(tool, flags, threads, files_root);
  options.continues = !files.params.empty();
  if (!flags.kill_point.empty()) {
    MILLRACE_ASSIGN_OR_RETURN(options.kill_point, ps::KillPoint::parse(flags.kill_point));
  }
  if (is_fleet_role(files.program)) {
    MILLRACE_RETURN_IF_ERROR(
        job->open_fleet(tool, files, flags, std::move(options), std::move(transport)));
    return job;
  }
  const auto runtime = executor::make_runtime(files_root);
  MILLRACE_ASSIGN_OR_RETURN(job->program_, read_program(tool, files.program));
  MILLRACE_RETURN_IF_ERROR(job->make_tables(files, options));
  job->role_ =
      std::make_shared<ps::ServerRole>(std::move(transport), std::move(options),
                                       // With a directory, the transport knows where to listen, and
                                       // needs the endpoint in the program as the name.
                                       flags.etcd.empty() ? flags.endpoint : std::string());
  ps::add_server_controls(runtime->controls, job->role_);
  if (Status status = ops::check_program(*runtime->ops, *job->program_); !status.ok())
    return std::move(status).in_file(files.program);
  // block 0 only runs listen_and_serv, so there is nothing to rewrite
  const executor::Executor executor(
      runtime, {.threads = threads, .seed = tool.common().seed, .optimize = false});
  MILLRACE_RETURN_IF_ERROR(job->load(tool, files, *runtime->ops, executor));
  StatusOr<std::unique_ptr<executor::PreparedProgram>> prepared =
      executor.prepare(*job->program_, job->scope_);
  if (!prepared.ok()) return std::move(prepared).status().in_file(files.program);
  job->prepared_ = *std::move(prepared);
  return job;
}

Status ServerJob::open_fleet(const Tool& tool, const Files& files, const PsFlags& flags,
                             ps::ServerOptions options, std::shared_ptr<ps::Transport> transport) {
  MILLRACE_ASSIGN_OR_RETURN(FleetRole role, read_fleet_role(tool, files.program, files.startup));
  if (!role.is_server)
    return Status(StatusCode::kUsage, "expected the folder of a server, found that of a trainer")
        .in_file(files.program);
  if (!files.load_program.empty())
    return Unimplemented("--load-program of a fleet job: its tables are loaded with --params");
  server_ = static_cast<size_t>(role.index);
  MILLRACE_ASSIGN_OR_RETURN(typed_, fleet::described_sparse_tables(role.description, role.servers));
  transport_ = std::move(transport);
  // With a directory, the transport knows where to listen, and needs the endpoint of the job as the
  // name.
  endpoint_ =
      flags.etcd.empty() && !flags.endpoint.empty() ? flags.endpoint : role.servers[server_];
  fleet::ServerSetup setup;
  setup.description = std::move(role.description);
  setup.workers = role.workers;
  setup.server = role.index;
  setup.servers = static_cast<int>(role.servers.size());
  setup.tables.seed = tool.common().seed;
  setup.service = std::move(options);
  StatusOr<std::unique_ptr<fleet::FleetServer>> made = fleet::FleetServer::create(std::move(setup));
  if (!made.ok()) return std::move(made).status().in_file(files.program);
  fleet_ = *std::move(made);
  return load_fleet(files);
}

// Loads tables that a job has saved, or rows of embeddings. In the latter case the dense parameters
// are sent by the first trainer.
Status ServerJob::load_fleet(const Files& files) {
  if (files.params.empty()) return Ok();
  executor::NamedValues whole;
  if (std::filesystem::is_directory(files.params)) {
    if (ps::has_tables(files.params)) return fleet_->load(files.params);
    std::vector<io::ParamSpec> specs;
    for (const ps::TypedTable& typed : typed_) {
      if (std::filesystem::exists(std::filesystem::path(files.params) / typed.param))
        specs.push_back({typed.param, VarKind::kLodTensor, DType::kFloat32, std::nullopt});
    }
    MILLRACE_RETURN_IF_ERROR(
        io::check_folder(files.params, io::names_of(specs), io::CheckFiles::kBytes));
    MILLRACE_ASSIGN_OR_RETURN(whole, io::load_separate(files.params, specs));
  } else {
    MILLRACE_ASSIGN_OR_RETURN(whole, io::read_values(files.params));
  }
  return fill_tables(whole, fleet_->tables()).in_file(files.params);
}

// Creates the typed tables that the job's tables.json assigns to this server.
Status ServerJob::make_tables(const Files& files, ps::ServerOptions& options) {
  MILLRACE_ASSIGN_OR_RETURN(typed_, read_typed_tables(files.slices));
  if (typed_.empty()) return Ok();
  const Op* serve = nullptr;
  for (const Op& op : program_->root().ops()) {
    if (op.type() == "listen_and_serv") serve = &op;
  }
  if (serve == nullptr)
    return Unimplemented("typed tables on a server program without listen_and_serv")
        .in_file(files.program);
  const std::string own = get_attr_or<std::string>(*serve, "endpoint", "");
  const std::vector<std::string>& servers = typed_.front().endpoints;
  server_ = static_cast<size_t>(std::find(servers.begin(), servers.end(), own) - servers.begin());
  if (server_ == servers.size())
    return InvalidData("tables.json does not list the server '{}'", own).in_file(files.program);
  tables_ = std::make_unique<ps::TableHandler>(get_attr_or<int32_t>(*serve, "Fanin", 1));
  for (const ps::TypedTable& typed : typed_) {
    ps::SparseTableOptions settings = typed.options;
    if (!settings.disk_path.empty()) settings.disk_path += fmt::format("/server-{}", server_);
    MILLRACE_ASSIGN_OR_RETURN(std::unique_ptr<ps::SparseTable> table,
                              ps::SparseTable::create(std::move(settings)));
    MILLRACE_RETURN_IF_ERROR(
        table->clear());  // drops rows of an earlier job; rows of this job are in the snapshots
    MILLRACE_RETURN_IF_ERROR(tables_->add_sparse(std::move(table), typed.shrink_every));
  }
  options.tables = tables_.get();
  return Ok();
}

// Loads the rows of typed tables that the parameters contain and that belong to this server.
Status ServerJob::fill_tables(const executor::NamedValues& whole, ps::TableHandler& tables) {
  for (const ps::TypedTable& typed : typed_) {
    const auto found = whole.find(typed.param);
    if (found == whole.end()) continue;
    MILLRACE_ASSIGN_OR_RETURN(const ps::SparseLayout layout, ps::layout_of(typed));
    const auto* const rows = found->second.get_if<Tensor>();
    if (rows == nullptr || rows->dtype() != DType::kFloat32 || rows->rank() != 2 ||
        rows->dim(1) != layout.pull_width)
      return InvalidData("'{}' must be f32(n, {}), found {}", typed.param, layout.pull_width,
                         describe(found->second));
    MILLRACE_ASSIGN_OR_RETURN(
        const ps::SparseRouting routing,
        ps::SparseRouting::create(typed.shard_num, static_cast<int64_t>(typed.endpoints.size())));
    std::vector<int64_t> keys;
    std::vector<float> values;
    for (int64_t row = 0; row < rows->dim(0); ++row) {
      if (routing.server_of(row) != static_cast<int64_t>(server_)) continue;
      keys.push_back(row);
      const float* const from = rows->data<float>() + row * layout.pull_width;
      values.insert(values.end(), from, from + layout.pull_width);
    }
    MILLRACE_RETURN_IF_ERROR(tables.sparse().at(layout.table_id)->set(keys, values.data()));
  }
  return Ok();
}

Status ServerJob::load(const Tool& tool, const Files& files, const ops::OpRegistry& registry,
                       const executor::Executor& executor) {
  for (const std::string* const file : {&files.startup, &files.load_program}) {
    if (file->empty()) continue;
    MILLRACE_ASSIGN_OR_RETURN(const std::unique_ptr<Program> program,
                              read_checked_program(tool, *file, registry));
    StatusOr<std::unique_ptr<executor::PreparedProgram>> prepared =
        executor.prepare(*program, scope_);
    std::vector<Value> none;
    Status status = prepared.ok() ? (*prepared)->run({}, {}, none) : prepared.status();
    if (!status.ok()) return std::move(status).in_file(*file);
  }
  if (files.slices.empty()) {
    if (files.params.empty()) return Ok();
    return {StatusCode::kUsage, "--params has whole variables; expected --slices as well"};
  }
  MILLRACE_ASSIGN_OR_RETURN(const std::string text, read_file(files.slices, kMostSlicesBytes));
  StatusOr<transpiler::SlicesFile> slices = transpiler::parse_slices_json(text);
  if (!slices.ok()) return std::move(slices).status().in_file(files.slices);
  MILLRACE_RETURN_IF_ERROR(ps::number_table_rows(*slices, *program_, scope_));
  if (files.params.empty()) return Ok();
  if (std::filesystem::is_directory(files.params)) {
    return ps::load_server_persistables(*slices, *program_, files.params, scope_,
                                        {.threads = tool.common().threads});
  }
  MILLRACE_ASSIGN_OR_RETURN(const executor::NamedValues whole, io::read_values(files.params));
  if (tables_ != nullptr)
    MILLRACE_RETURN_IF_ERROR(fill_tables(whole, *tables_).in_file(files.params));
  return ps::load_slices(*slices, *program_, whole, scope_).in_file(files.params);
}

void ServerJob::on_ready(std::function<void(const std::string&)> told) {
  if (fleet_ != nullptr) {
    ready_ = std::move(told);
  } else {
    role_->on_ready(std::move(told));
  }
}

void ServerJob::publish_to(ps::Metrics& metrics) {
  if (fleet_ != nullptr) {
    fleet_->publish_to(metrics);
  } else {
    role_->publish_to(metrics);
  }
}

void ServerJob::stop() {
  if (fleet_ != nullptr) {
    fleet_->stop();
  } else {
    role_->stop();
  }
}

Status ServerJob::serve() {
  if (fleet_ != nullptr) return fleet_->serve(*transport_, endpoint_, ready_);
  std::vector<Value> none;
  return prepared_->run({}, {}, none).in_file(name_);
}

}  // namespace millrace::tools
