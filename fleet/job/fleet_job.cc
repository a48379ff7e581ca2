#include "fleet/job/fleet_job.h"

#include <set>

#include "fleet/job/common_accessor.h"
#include "fleet/job/ps_desc.h"
#include "fleet/job/runtime_json.h"
#include "fleet/strategy/strategy_remarks.h"
#include "framework/base/errors.h"
#include "ps/transport/endpoint.h"

namespace millrace::fleet {
namespace {

Status check_processes(const JobSpec& spec) {
  if (spec.servers.empty()) return InvalidArgument("a fleet job needs at least one server");
  if (spec.workers < 1)
    return InvalidArgument("a fleet job needs at least one worker (found {})", spec.workers);
  std::set<std::string> seen;
  for (const std::string& endpoint : spec.servers) {
    MILLRACE_RETURN_IF_ERROR(ps::parse_endpoint(endpoint).status());
    if (!seen.insert(endpoint).second)
      return InvalidArgument("the server '{}' occurs twice", endpoint);
  }
  return Ok();
}

Status check_supported(const JobSpec& spec) {
  if (spec.strategy.a_sync_configs().use_ps_gpu != 0)
    return Unimplemented("a_sync_configs.use_ps_gpu: tables in GPU memory are not implemented");
  if (!spec.environment("PADDLE_ALL_HETER_TRAINER_IP_PORT_LIST").value_or("").empty())
    return Unimplemented(
        "heter workers (PADDLE_ALL_HETER_TRAINER_IP_PORT_LIST) are not implemented");
  const TrainerDescConfigs& configs = spec.strategy.trainer_desc_configs();
  if (!configs.local_sparse.empty() || !configs.remote_sparse.empty())
    return Unimplemented(
        "trainer_desc_configs.local_sparse and remote_sparse: federated tables are not "
        "implemented");
  return Ok();
}

}  // namespace

StatusOr<FleetJob> FleetJob::create(const Program& main, const Program& startup, JobSpec spec) {
  if (spec.environment == nullptr)
    spec.environment = [](const std::string&) { return std::nullopt; };
  MILLRACE_RETURN_IF_ERROR(check_processes(spec));
  MILLRACE_RETURN_IF_ERROR(check_supported(spec));
  FleetJob job;
  MILLRACE_ASSIGN_OR_RETURN(job.mode_, spec.strategy.mode());
  MILLRACE_ASSIGN_OR_RETURN(job.plan_, transpiler::plan_tables(main));
  job.main_ = &main;
  job.startup_ = &startup;
  job.spec_ = std::move(spec);
  return job;
}

StatusOr<RoleOutput> FleetJob::role(const JobRole& role) const {
  const int count = role.is_server ? static_cast<int>(spec_.servers.size()) : spec_.workers;
  if (role.index < 0 || role.index >= count)
    return InvalidArgument("{} {} of {}: expected a smaller number",
                           role.is_server ? "server" : "worker", role.index, count);
  const auto mode = static_cast<transpiler::FleetMode>(mode_);
  RoleOutput out;
  if (role.is_server) {
    out.programs =
        transpiler::make_fleet_server({.mode = mode,
                                       .server = role.index,
                                       .endpoint = spec_.servers[static_cast<size_t>(role.index)],
                                       .workers = spec_.workers});
  } else {
    const JobRate rate = job_rate(*main_);
    MILLRACE_ASSIGN_OR_RETURN(
        out.programs,
        transpiler::make_fleet_worker(*main_, *startup_, plan_,
                                      {.mode = mode,
                                       .worker = role.index,
                                       .scheduled_rate = spec_.scheduled_rate,
                                       .computed_rate = rate.is_computed ? rate.var : ""}));
  }
  for (std::string& remark : strategy_remarks(spec_.strategy, plan_))
    out.programs.remarks.push_back(std::move(remark));
  MILLRACE_ASSIGN_OR_RETURN(
      out.ps_desc, describe_tables(*main_, *startup_, plan_, spec_, role, out.programs.remarks));
  MILLRACE_ASSIGN_OR_RETURN(out.runtime, runtime_json(plan_, spec_, role));
  return out;
}

}  // namespace millrace::fleet
