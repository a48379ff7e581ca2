#include "tools/transpile/fleet.h"

#include <set>

#include <fmt/format.h>

#include "fleet/job/fleet_job.h"
#include "jobs/config/fleet_config.h"
#include "jobs/distribute/earlier_job.h"
#include "jobs/distribute/made_program.h"
#include "tools/transpile/minimize.h"
#include "tools/transpile/write_below.h"

namespace millrace::tools {
namespace {

struct RoleFiles {
  std::string folder;
  fleet::RoleOutput output;
};

StatusOr<RoleFiles> make_role(const JobToWrite& job, const fleet::JobRole& role,
                              const ops::OpRegistry& registry, bool verify) {
  RoleFiles files;
  files.folder = fmt::format("{}_{}", role.is_server ? "pserver" : "trainer", role.index);
  MILLRACE_ASSIGN_OR_RETURN(files.output, job.role(role));
  if (!verify) return files;
  const transpiler::FleetPrograms& programs = files.output.programs;
  MILLRACE_RETURN_IF_ERROR(
      jobs::check_made_program(registry, *programs.main, files.folder + "/__model__"));
  MILLRACE_RETURN_IF_ERROR(
      jobs::check_made_program(registry, *programs.startup, files.folder + "/__startup__"));
  return files;
}

StatusOr<std::vector<RoleFiles>> make_roles(const JobToWrite& job, const ops::OpRegistry& registry,
                                            bool verify) {
  std::vector<RoleFiles> all;
  for (const bool is_server : {false, true}) {
    const fleet::JobSpec& spec = job.job.spec();
    const int count = is_server ? static_cast<int>(spec.servers.size()) : spec.workers;
    for (int i = 0; i < count; ++i) {
      MILLRACE_ASSIGN_OR_RETURN(RoleFiles files, make_role(job, {is_server, i}, registry, verify));
      all.push_back(std::move(files));
    }
  }
  return all;
}

// Logs each remark once, because many roles have the same remarks.
void log_remarks(const Tool& tool, const std::vector<RoleFiles>& roles) {
  std::set<std::string> said;
  for (const RoleFiles& role : roles) {
    for (const std::string& remark : role.output.programs.remarks) {
      if (said.insert(remark).second) tool.log(LogLevel::kWarning, remark);
    }
  }
}

Status write_heter_workers(Tool& tool, const fleet::FleetJob& job, const ops::OpRegistry& registry,
                           const TranspileOptions& options) {
  for (size_t i = 0; i < job.heter_workers().size(); ++i) {
    const transpiler::RolePrograms& programs = job.heter_workers()[i];
    const std::string folder = fmt::format("heter_{}", i);
    for (const auto& [name, program] :
         {std::pair("__model__", programs.main.get()), {"__startup__", programs.startup.get()}}) {
      if (options.verify)
        MILLRACE_RETURN_IF_ERROR(jobs::check_made_program(registry, *program, folder + "/" + name));
      MILLRACE_RETURN_IF_ERROR(write_below(
          tool, folder, name, jobs::made_program_bytes(*program, options.format == "text")));
    }
  }
  return Ok();
}

}  // namespace

StatusOr<int> write_fleet_job(Tool& tool, const TranspileOptions& options,
                              const ops::OpRegistry& registry, const JobToWrite& what) {
  const fleet::FleetJob& job = what.job;
  MILLRACE_ASSIGN_OR_RETURN(const std::vector<RoleFiles> roles,
                            make_roles(what, registry, options.verify));
  const bool as_text = options.format == "text";
  jobs::WrittenJob written{job.spec().workers,
                           static_cast<int64_t>(job.spec().servers.size()),
                           {},
                           true,
                           false,
                           static_cast<int64_t>(job.heter_workers().size()),
                           what.is_downpour};
  for (const auto& [folder, output] : roles) written.roles.push_back(folder);
  MILLRACE_RETURN_IF_ERROR(jobs::clear_earlier_job(
      tool.common().output, written, tool.common().force ? Replace::kYes : Replace::kNo));
  for (const auto& [folder, output] : roles) {
    for (const auto& [name, bytes] :
         {std::pair<std::string, std::string>(
              "__model__", jobs::made_program_bytes(*output.programs.main, as_text)),
          {"__startup__", jobs::made_program_bytes(*output.programs.startup, as_text)},
          {"ps_desc.txt", output.ps_desc},
          {"runtime.json", output.runtime}})
      MILLRACE_RETURN_IF_ERROR(write_below(tool, folder, name, bytes));
    for (const auto& [name, bytes] : what.more_files)
      MILLRACE_RETURN_IF_ERROR(write_below(tool, folder, name, bytes));
  }
  MILLRACE_RETURN_IF_ERROR(write_heter_workers(tool, job, registry, options));
  log_remarks(tool, roles);
  if (!job.spec().strategy.a_sync_configs().launch_barrier)
    tool.log(LogLevel::kWarning,
             "a_sync_configs.launch_barrier has no effect on the tools: trainers always wait for "
             "their servers");
  tool.log(LogLevel::kInfo, fmt::format("{} workers x {} servers, {} tables", job.spec().workers,
                                        job.spec().servers.size(), job.plan().barrier_id + 1));
  return kDone;
}

StatusOr<int> write_fleet(Tool& tool, const TranspileOptions& options) {
  if (options.minimize.empty()) return Status(StatusCode::kUsage, "--fleet needs --minimize");
  if (options.backward_only)
    return Status(StatusCode::kUsage, "--fleet and --backward-only exclude each other");
  const auto registry = ops::standard_registry();
  MILLRACE_ASSIGN_OR_RETURN(fleet::JobSpec spec,
                            jobs::read_fleet_config(options.fleet, fleet::process_environment()));
  MILLRACE_ASSIGN_OR_RETURN(const TrainingPrograms programs,
                            make_training_programs(tool, options, *registry));
  spec.scheduled_rate = programs.scheduled_rate;
  MILLRACE_ASSIGN_OR_RETURN(
      const fleet::FleetJob job,
      fleet::FleetJob::create(*programs.main, *programs.startup, std::move(spec)));
  JobToWrite what{.job = job, .role = [&](const fleet::JobRole& role) { return job.role(role); }};
  if (!programs.schedule.empty()) what.more_files = {{"schedule.json", programs.schedule}};
  return write_fleet_job(tool, options, *registry, what);
}

}  // namespace millrace::tools
