#include "transpiler/distribute/federated.h"

#include "framework/base/errors.h"
#include "transpiler/distribute/federated_passes.h"
#include "transpiler/distribute/pserver_program.h"
#include "transpiler/distribute/server_job.h"
#include "transpiler/roles.h"

namespace millrace::transpiler {
namespace {

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
                                                const ops::OpRegistry& registry,
                                                PassManagerOptions pass_options) {
  DistributionJob job;
  MILLRACE_RETURN_IF_ERROR(set_up_job(config, arguments, job));
  if (job.endpoints.size() > 1) {
    return InvalidArgument(
        "federated training works with one server, 'pservers' lists {}: every server would have "
        "to hold every parameter",
        job.endpoints.size());
  }
  job.config.enable_dc_asgd = false;
  FederatedPrograms out;
  const std::unique_ptr<Program> whole = main.clone();
  out.startup = startup.clone();
  PassContext context(registry);
  context.startup = out.startup.get();
  context.job = &job;
  pass_options.error_note = ErrorNote::kPass;
  MILLRACE_RETURN_IF_ERROR(run_distribution("federated-copy-params,federated-recv,federated-send",
                                            *whole, context, pass_options)
                               .status());
  out.recv = std::move(job.recv);
  out.compute = with_ops(*whole, 0, job.first_send);
  out.send = with_ops(*whole, job.first_send, whole->root().op_count());

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
