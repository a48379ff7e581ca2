#include "jobs/ps/server_job.h"

#include <algorithm>
#include <set>
#include <utility>

#include "executor/standard_runtime.h"
#include "framework/base/errors.h"
#include "framework/op_attrs.h"
#include "framework/read_program.h"
#include "io/lacking_vars.h"
#include "io/npz.h"
#include "io/paths.h"
#include "jobs/config/distribution_facts.h"
#include "jobs/config/slices_file.h"
#include "jobs/config/typed_tables.h"
#include "jobs/ps/fill_tables.h"
#include "ops/read_checked_program.h"
#include "ops/verify.h"
#include "ps/saving/distributed_load.h"
#include "ps/server/load_slices.h"

namespace millrace::jobs {
namespace {

bool is_heter_worker(const Program& program) {
  return llvm::any_of(program.root().ops(),
                      [](const Op& op) { return op.type() == "heter_listen_and_serv"; });
}

}  // namespace

StatusOr<std::unique_ptr<ServerJob>> ServerJob::open(const Files& given, Settings settings,
                                                     std::shared_ptr<ps::Transport> transport) {
  std::unique_ptr<ServerJob> job(new ServerJob());
  Files files = given;
  job->name_ = files.program;
  ps::ServerOptions& service = settings.service;
  const auto runtime = executor::make_runtime(service.files_root);
  MILLRACE_ASSIGN_OR_RETURN(job->program_, read_program(files.program, settings.reading));
  for (const Op& op : job->program_->root().ops())
    job->trainers_ = get_attr_or<int32_t>(op, "Fanin", job->trainers_);
  // the slices of the job are those of its servers, which a heter worker knows nothing of
  if (is_heter_worker(*job->program_)) files.slices.clear();
  MILLRACE_RETURN_IF_ERROR(job->make_tables(files, service));
  MILLRACE_RETURN_IF_ERROR(job->read_plan(files, service));
  // block 0 only runs listen_and_serv, so there is nothing to rewrite
  const executor::Executor executor(
      runtime, {.threads = service.threads, .seed = service.seed, .optimize = false});
  job->role_ =
      std::make_shared<ps::ServerRole>(std::move(transport), std::move(service), settings.endpoint);
  ps::add_server_controls(runtime->controls, job->role_);
  if (Status status = ops::check_program(*runtime->ops, *job->program_); !status.ok())
    return std::move(status).in_file(files.program);
  MILLRACE_RETURN_IF_ERROR(job->run_startup(files, settings.reading, *runtime->ops, executor));
  MILLRACE_RETURN_IF_ERROR(job->load(files, settings.loading_threads, settings.log));
  StatusOr<std::unique_ptr<executor::PreparedProgram>> prepared =
      executor.prepare(*job->program_, job->scope_);
  if (!prepared.ok()) return std::move(prepared).status().in_file(files.program);
  job->prepared_ = *std::move(prepared);
  return job;
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
    if (!settings.disk_path.empty()) {
      settings.disk_path += fmt::format("/server-{}", server_);
      if (!options.files_root.empty())
        MILLRACE_RETURN_IF_ERROR(
            io::check_inside(options.files_root, settings.disk_path)
                .with_note(fmt::format("the disk_path of typed table {}", typed.options.table_id)));
    }
    MILLRACE_ASSIGN_OR_RETURN(std::unique_ptr<ps::SparseTable> table,
                              ps::SparseTable::create(std::move(settings)));
    MILLRACE_RETURN_IF_ERROR(
        table->clear());  // drops rows of an earlier job; rows of this job are in the snapshots
    MILLRACE_RETURN_IF_ERROR(tables_->add_sparse(std::move(table), typed.shrink_every));
  }
  options.tables = tables_.get();
  return Ok();
}

// Reads what the program does not say about the distribution.
Status ServerJob::read_plan(const Files& files, ps::ServerOptions& options) {
  if (files.slices.empty()) return Ok();
  MILLRACE_ASSIGN_OR_RETURN(slices_, read_slices(files.slices));
  MILLRACE_ASSIGN_OR_RETURN(const Op* const serve, ps::find_serve_op(*program_));
  const std::vector<std::string>& servers = slices_->properties.endpoints;
  const auto own =
      std::find(servers.begin(), servers.end(), get_attr_or<std::string>(*serve, "endpoint", ""));
  options.plan = distribution_facts(*slices_, typed_, static_cast<size_t>(own - servers.begin()));
  if (own != servers.end()) options.server = static_cast<int>(own - servers.begin());
  return Ok();
}

Status ServerJob::run_startup(const Files& files, const ImportOptions& reading,
                              const ops::OpRegistry& registry, const executor::Executor& executor) {
  for (const std::string* const file : {&files.startup, &files.load_program}) {
    if (file->empty()) continue;
    MILLRACE_ASSIGN_OR_RETURN(const std::unique_ptr<Program> program,
                              ops::read_checked_program(registry, *file, reading));
    StatusOr<std::unique_ptr<executor::PreparedProgram>> prepared =
        executor.prepare(*program, scope_);
    std::vector<Value> none;
    Status status = prepared.ok() ? (*prepared)->run({}, {}, none) : prepared.status();
    if (!status.ok()) return std::move(status).in_file(*file);
  }
  return Ok();
}

Status ServerJob::load(const Files& files, int threads, const LogSink& log) {
  if (!slices_) {
    if (files.params.empty()) return Ok();
    return {StatusCode::kUsage, "files.params has whole variables; expected files.slices as well"};
  }
  const transpiler::SlicesFile& slices = *slices_;
  MILLRACE_RETURN_IF_ERROR(ps::number_table_rows(slices, *program_, scope_));
  if (files.params.empty()) return Ok();
  if (io::is_folder(files.params)) {
    if (tables_ != nullptr)
      MILLRACE_RETURN_IF_ERROR(
          fill_tables_from_folder(files.params, typed_, /*all=*/true, server_, *tables_, log));
    return ps::load_server_persistables(slices, *program_, files.params, scope_,
                                        {.threads = threads});
  }
  MILLRACE_ASSIGN_OR_RETURN(const executor::NamedValues whole, io::read_values(files.params));
  if (tables_ != nullptr)
    MILLRACE_RETURN_IF_ERROR(
        fill_tables(whole, typed_, server_, *tables_, log).in_file(files.params));
  MILLRACE_RETURN_IF_ERROR(ps::load_slices(slices, *program_, whole, scope_).in_file(files.params));
  MILLRACE_ASSIGN_OR_RETURN(const Op* const serve, ps::find_serve_op(*program_));
  std::set<std::string> lacking;
  for (const transpiler::DistributedVar* const entry :
       slices.overview.get_distributed_vars_by_ep(get_attr_or<std::string>(*serve, "endpoint", "")))
    if (!whole.contains(entry->origin.name)) lacking.insert(entry->origin.name);
  if (!lacking.empty())
    log(LogLevel::kWarning, io::lacking_warning(files.params, {lacking.begin(), lacking.end()}));
  return Ok();
}

Status ServerJob::serve() {
  std::vector<Value> none;
  return prepared_->run({}, {}, none).in_file(name_);
}

}  // namespace millrace::jobs
