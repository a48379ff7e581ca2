#include "transpiler/distribute/federated.h"

#include "framework/base/errors.h"
#include "transpiler/distribute/federated_passes.h"
#include "transpiler/distribute/pserver_program.h"
#include "transpiler/distribute/run_steps.h"
#include "transpiler/distribute/server_job.h"
#include "transpiler/roles.h"

namespace millrace::transpiler {
namespace {

Status run_step(std::unique_ptr<Pass> step, Program& program, PassContext& context) {
  Steps steps;
  steps.push_back(std::move(step));
  return run_steps(steps, program, context);
}

// A copy of the program with only the ops [begin, end) of block 0.
std::unique_ptr<Program> with_ops(const Program& program, size_t begin, size_t end) {
  std::unique_ptr<Program> part = program.clone();
  const std::vector<Op*> ops = part->root().op_vector();
  for (size_t i = 0; i < ops.size(); ++i) {
    if (i < begin || i >= end) part->root().erase(*ops[i]);
  }
  return part;
}

}  // namespace

StatusOr<FederatedPrograms> transpile_federated(const Program& main, const Program& startup,
                                                const DistributeTranspilerConfig& config,
                                                const TranspileArguments& arguments,
                                                const ops::OpRegistry& registry) {
  DistributionJob job;
  MILLRACE_RETURN_IF_ERROR(set_up_job(config, arguments, job));
  if (job.endpoints.size() > 1) {
    return InvalidArgument(
        "federated training works with one server, 'pservers' lists {}: every server would have "
        "to hold every parameter",
        job.endpoints.size());
  }
  job.config.enable_dc_asgd = false;
  PassContext context(registry);
  context.job = &job;

  FederatedPrograms out;
  const std::unique_ptr<Program> whole = main.clone();
  MILLRACE_RETURN_IF_ERROR(run_step(federated_copy_params(), *whole, context));
  out.recv = whole->clone();
  MILLRACE_RETURN_IF_ERROR(run_step(federated_recv(), *out.recv, context));
  const size_t split = whole->root().op_count();
  MILLRACE_RETURN_IF_ERROR(run_step(federated_send(), *whole, context));
  out.compute = with_ops(*whole, 0, split);
  out.send = with_ops(*whole, split, whole->root().op_count());
  out.startup = startup.clone();

  job.lr_ops = role::lr_ops(main.root());
  RolePrograms server;
  MILLRACE_ASSIGN_OR_RETURN(server.main, make_federated_pserver(main, context, job));
  MILLRACE_ASSIGN_OR_RETURN(server.startup, make_pserver_startup(startup, *server.main, job, 0));
  out.pservers.push_back(std::move(server));
  out.properties = job_properties(job);
  out.overview = std::move(job.overview);
  out.remarks = std::move(context.remarks);
  return out;
}

}  // namespace millrace::transpiler
