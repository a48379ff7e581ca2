#include "fleet/job/fleet_job.h"

#include <set>

#include <fmt/format.h>
#include <llvm/ADT/StringRef.h>

#include "fleet/job/common_accessor.h"
#include "fleet/job/ps_desc.h"
#include "fleet/job/runtime_json.h"
#include "fleet/strategy/strategy_remarks.h"
#include "framework/base/errors.h"
#include "ops/registry.h"
#include "ps/transport/endpoint.h"
#include "transpiler/distribute/distribution_passes.h"
#include "transpiler/fleet/dense_gradients.h"

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
  const std::string& guard = spec.strategy.a_sync_configs().heter_worker_device_guard;
  if (!spec.heter.endpoints.empty() && !llvm::StringRef(guard).equals_insensitive("cpu"))
    return Unimplemented(
        "a_sync_configs.heter_worker_device_guard '{}': heter workers compute on the CPU", guard);
  const TrainerDescConfigs& configs = spec.strategy.trainer_desc_configs();
  if (!configs.local_sparse.empty() || !configs.remote_sparse.empty())
    return Unimplemented(
        "trainer_desc_configs.local_sparse and remote_sparse: federated tables are not "
        "implemented");
  return Ok();
}

// What a job whose workers average dense gradients cannot be combined with.
Status check_all_reduce(const JobSpec& spec, ps::CommMode mode) {
  if (!spec.all_reduces_dense) return Ok();
  if (mode == ps::CommMode::kGeo)
    return Unimplemented("dense_gradients all_reduce in a geo job, whose workers train apart");
  if (!spec.heter.endpoints.empty())
    return Unimplemented("dense_gradients all_reduce in a job with heter workers");
  const size_t endpoints = spec.worker_endpoints.size();
  if (endpoints != 0 && endpoints != static_cast<size_t>(spec.workers))
    return InvalidArgument(
        "dense_gradients all_reduce: the job has {} workers and {} endpoints of them, expected one "
        "for each",
        spec.workers, endpoints);
  if (spec.strategy.adam_d2sum())
    return Unimplemented(
        "adam_d2sum with dense_gradients all_reduce: it is a rule of dense tables, and the job has "
        "none");
  return Ok();
}

// The environment names the workers of a job whose settings do not.
Status read_heter_workers(JobSpec& spec) {
  const std::string variable = "PADDLE_ALL_HETER_TRAINER_IP_PORT_LIST";
  const std::vector<std::string> named = split_list(spec.environment(variable).value_or(""));
  if (spec.heter.endpoints.empty()) spec.heter.endpoints = named;
  if (spec.heter.endpoints.empty() && !spec.heter.returned.empty())
    return InvalidArgument("heter_returned: the job has no heter workers");
  if (named.empty() || named == spec.heter.endpoints) return Ok();
  return InvalidArgument("the job has the heter workers '{}', but {} is '{}'",
                         join_list(spec.heter.endpoints), variable, join_list(named));
}

}  // namespace

// What trainers keep of the program is planned like any other one.
Status FleetJob::take_heter_workers() {
  if (spec_.heter.endpoints.empty()) return Ok();
  without_heter_ = main_->clone();
  MILLRACE_ASSIGN_OR_RETURN(
      heter_workers_,
      transpiler::make_heter_workers(*without_heter_, spec_.heter, spec_.workers,
                                     *ops::standard_registry(), transpiler::fast_options()));
  main_ = without_heter_.get();
  return Ok();
}

StatusOr<FleetJob> FleetJob::create(const Program& main, const Program& startup, JobSpec spec) {
  if (spec.environment == nullptr)
    spec.environment = [](const std::string&) { return std::nullopt; };
  MILLRACE_RETURN_IF_ERROR(read_heter_workers(spec));
  MILLRACE_RETURN_IF_ERROR(check_processes(spec));
  MILLRACE_RETURN_IF_ERROR(check_supported(spec));
  FleetJob job;
  MILLRACE_ASSIGN_OR_RETURN(job.mode_, spec.strategy.mode());
  MILLRACE_RETURN_IF_ERROR(check_all_reduce(spec, job.mode_));
  job.main_ = &main;
  job.startup_ = &startup;
  job.spec_ = std::move(spec);
  MILLRACE_RETURN_IF_ERROR(job.take_heter_workers());
  MILLRACE_RETURN_IF_ERROR(job.mode_ == ps::CommMode::kGeo
                               ? transpiler::check_geo_lookups(*job.main_)
                               : transpiler::check_lookups(*job.main_, /*distributed=*/false));
  MILLRACE_ASSIGN_OR_RETURN(job.plan_, transpiler::plan_tables(*job.main_));
  if (job.spec_.all_reduces_dense)
    MILLRACE_RETURN_IF_ERROR(transpiler::keep_rows_only(*job.main_, job.plan_));
  return job;
}

void FleetJob::add_remarks(std::vector<std::string>& remarks) const {
  for (std::string& remark : strategy_remarks(spec_.strategy, plan_))
    remarks.push_back(std::move(remark));
  if (!spec_.worker_endpoints.empty() &&
      spec_.worker_endpoints.size() != static_cast<size_t>(spec_.workers))
    remarks.push_back(
        fmt::format("the job has {} workers, although {} endpoints of workers are given",
                    spec_.workers, spec_.worker_endpoints.size()));
  if (mode_ == ps::CommMode::kGeo) return;
  const Status lookups = transpiler::check_lookups(*main_, /*distributed=*/true);
  if (!lookups.ok()) remarks.push_back("the job will not run: " + lookups.message());
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
        out.programs, transpiler::make_fleet_worker(
                          *main_, *startup_, plan_,
                          {.mode = mode,
                           .worker = role.index,
                           .scheduled_rate = spec_.scheduled_rate,
                           .computed_rate = rate.is_computed ? rate.var : "",
                           .averaging_workers = spec_.all_reduces_dense ? spec_.workers : 0}));
    transpiler::number_heter_calls(*out.programs.main, role.index);
  }
  add_remarks(out.programs.remarks);
  MILLRACE_ASSIGN_OR_RETURN(
      out.ps_desc, describe_tables(*main_, *startup_, plan_, spec_, role, out.programs.remarks));
  MILLRACE_ASSIGN_OR_RETURN(out.runtime, runtime_json(plan_, spec_, role));
  return out;
}

}  // namespace millrace::fleet
