#include "jobs/ps/fleet_server_job.h"

#include <optional>
#include <utility>

#include "executor/executor.h"
#include "framework/base/errors.h"
#include "io/npz.h"
#include "io/params.h"
#include "io/params_manifest.h"
#include "io/paths.h"
#include "jobs/ps/fill_tables.h"
#include "jobs/ps/fleet_role.h"
#include "jobs/ps/listed_tables.h"

namespace millrace::jobs {
namespace {

// Without its tables, a job would continue from the dense parameters and forget the rest.
Status check_has_no_tables(const std::string& folder) {
  MILLRACE_ASSIGN_OR_RETURN(const auto part, find_listed_table(folder));
  if (!part) return Ok();
  return NotFound(
             "{}: expected the tables that {} lists, such as '{}' of the server at {}, found none",
             folder, io::params_manifest_path(folder), part->file, part->endpoint)
      .with_hint("copy the parts of all servers into the folder");
}

}  // namespace

StatusOr<std::unique_ptr<FleetServerJob>> FleetServerJob::open(
    const Files& files, Settings settings, std::shared_ptr<ps::Transport> transport) {
  MILLRACE_ASSIGN_OR_RETURN(FleetRole role,
                            read_fleet_role(files.program, files.startup, settings.reading));
  if (!role.is_server)
    return Status(StatusCode::kUsage, "expected the folder of a server, found that of a trainer")
        .in_file(files.program);
  if (role.all_reduces_dense)
    MILLRACE_RETURN_IF_ERROR(
        fleet::check_hybrid_service(settings.service, role.mode == ps::CommMode::kSync)
            .in_file(files.program));
  if (!files.load_program.empty())
    return Unimplemented(
        "files.load_program of a fleet job: its tables are loaded with files.params");
  std::unique_ptr<FleetServerJob> job(new FleetServerJob());
  const auto index = static_cast<size_t>(role.index);
  MILLRACE_ASSIGN_OR_RETURN(job->typed_,
                            fleet::described_sparse_tables(role.description, role.servers));
  job->transport_ = std::move(transport);
  job->endpoint_ = settings.endpoint.empty() ? role.servers[index] : settings.endpoint;
  fleet::ServerSetup setup;
  setup.description = std::move(role.description);
  setup.workers = job->trainers_ = role.workers;
  setup.server = role.index;
  setup.servers = static_cast<int>(role.servers.size());
  setup.tables.seed = settings.service.seed;
  setup.service = std::move(settings.service);
  StatusOr<std::unique_ptr<fleet::FleetServer>> made = fleet::FleetServer::create(std::move(setup));
  if (!made.ok()) return std::move(made).status().in_file(files.program);
  job->server_ = *std::move(made);
  if (!files.params.empty()) MILLRACE_RETURN_IF_ERROR(job->load(files.params, index, settings.log));
  return job;
}

// Loads tables that a job has saved, or rows of embeddings. In the latter case the dense parameters
// are sent by the first trainer.
Status FleetServerJob::load(const std::string& params, size_t index, const LogSink& log) {
  if (io::is_folder(params)) {
    if (ps::has_tables(params)) return server_->load(params);
    MILLRACE_RETURN_IF_ERROR(check_has_no_tables(params));
    return fill_tables_from_folder(params, typed_, /*all=*/false, index, server_->tables(), log);
  }
  MILLRACE_ASSIGN_OR_RETURN(const executor::NamedValues whole, io::read_values(params));
  return fill_tables(whole, typed_, index, server_->tables(), log).in_file(params);
}

}  // namespace millrace::jobs
