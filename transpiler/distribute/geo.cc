#include "transpiler/distribute/geo.h"

#include "framework/base/errors.h"
#include "transpiler/distribute/geo_passes.h"
#include "transpiler/distribute/pserver_program.h"
#include "transpiler/distribute/server_job.h"

namespace millrace::transpiler {
namespace {

std::vector<GeoVar> vars_info(const DistributionJob& job) {
  std::vector<GeoVar> out;
  for (const ParamGrad& pair : job.pairs) {
    GeoVar var;
    var.origin = pair.param;
    var.is_sparse = pair.grad_kind == VarKind::kSelectedRows;
    for (const PlacedSlice& placed : pair.slices) {
      var.var_names.push_back(placed.param);
      var.sections.push_back(placed.slice.dims.empty() ? 1 : placed.slice.dims.front());
      var.epmap.push_back(job.endpoints[static_cast<size_t>(placed.endpoint)]);
    }
    out.push_back(std::move(var));
  }
  return out;
}

}  // namespace

StatusOr<GeoPrograms> transpile_geo(const Program& main, const Program& startup,
                                    const DistributeTranspilerConfig& config,
                                    const TranspileArguments& arguments,
                                    const ops::OpRegistry& registry,
                                    PassManagerOptions pass_options) {
  if (config.geo_sgd_need_push_nums < 1) {
    return InvalidArgument("geo_sgd_need_push_nums must be at least 1 (found {})",
                           config.geo_sgd_need_push_nums);
  }
  DistributionJob job;
  MILLRACE_RETURN_IF_ERROR(set_up_job(config, arguments, job));
  job.arguments.sync_mode = false;
  job.config.enable_dc_asgd = false;  // there is no gradient to compensate

  GeoPrograms out;
  out.trainer = {main.clone(), startup.clone()};
  PassContext context(registry);
  context.startup = out.trainer.startup.get();
  context.job = &job;
  pass_options.error_note = ErrorNote::kPass;
  MILLRACE_RETURN_IF_ERROR(run_distribution("geo-collect,geo-cut,geo-send-ids,geo-extend-startup",
                                            *out.trainer.main, context, pass_options)
                               .status());
  if (job.pairs.empty())
    return InvalidProgram("the program updates no parameter, so trainers have nothing to exchange");

  for (size_t server = 0; server < job.endpoints.size(); ++server) {
    RolePrograms programs;
    programs.main = make_geo_pserver(main, job, server);
    MILLRACE_ASSIGN_OR_RETURN(programs.startup,
                              make_pserver_startup(startup, *programs.main, job, server));
    out.pservers.push_back(std::move(programs));
  }
  out.properties = job_properties(job);
  out.properties.geo = GeoFacts{
      .push_nums = config.geo_sgd_need_push_nums, .trainers = job.trainers, .vars = vars_info(job)};
  out.overview = std::move(job.overview);
  return out;
}

}  // namespace millrace::transpiler
