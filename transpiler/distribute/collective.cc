#include "transpiler/distribute/collective.h"

#include <algorithm>

#include "transpiler/distribute/collective_passes.h"
#include "transpiler/distribute/run_steps.h"

namespace millrace::transpiler {
namespace {

Steps startup_steps(const CollectivePlan& plan, const std::string& mode) {
  Steps steps;
  if (mode == "single_process_multi_thread") {
    steps.push_back(init_device_communicators(plan));
    return steps;
  }
  steps.push_back(init_communicators(plan));
  steps.push_back(broadcast_parameters(plan));
  if (mode == "local_sgd") steps.push_back(snapshot_parameters(plan));
  return steps;
}

// Number of gradients to reduce; if there are none, the loss is scaled by the number of devices
// only, not by machines.
StatusOr<int64_t> count_reduced(const Program& main, const CollectivePlan& plan) {
  int64_t count = 0;
  for (const Op& op : main.root().ops()) {
    MILLRACE_ASSIGN_OR_RETURN(const std::vector<GradPair> pairs, backward_pairs(op));
    count += std::count_if(pairs.begin(), pairs.end(),
                           [&](const GradPair& pair) { return !plan.is_table(pair.param); });
  }
  return count;
}

Steps main_steps(const CollectivePlan& plan, const DistributeTranspilerConfig& config,
                 int64_t reduced) {
  Steps steps;
  if (config.collective_mode == "local_sgd") {
    steps.push_back(average_updates(plan));
    return steps;
  }
  if (config.collective_mode == "grad_allreduce") {
    steps.push_back(scale_loss_gradient(1.0 / static_cast<double>(plan.ranks)));
    steps.push_back(allreduce_gradients(plan));
    return steps;
  }
  if (config.scale_loss_gradient) {
    const auto devices = static_cast<double>(std::max<int64_t>(plan.device_count, 1));
    const double ranks = reduced > 0 ? static_cast<double>(plan.ranks) : 1.0;
    steps.push_back(scale_loss_gradient(1.0 / ranks / devices));
  }
  if (reduced > 0) {
    steps.push_back(plan.fuse_allreduce > 0 ? allreduce_fused(plan) : allreduce_gradients(plan));
  }
  return steps;
}

}  // namespace

StatusOr<RolePrograms> transpile_collective(const Program& main, const Program& startup,
                                            const DistributeTranspilerConfig& config,
                                            const TranspileArguments& arguments,
                                            const ops::OpRegistry& registry,
                                            ProgramProperties* properties) {
  MILLRACE_ASSIGN_OR_RETURN(const CollectivePlan plan,
                            plan_collective(main, startup, config, arguments));
  // Counted on the input program, so that an invalid op is reported with its original index.
  MILLRACE_ASSIGN_OR_RETURN(const int64_t reduced, count_reduced(main, plan));
  if (config.collective_mode != "local_sgd")
    MILLRACE_RETURN_IF_ERROR(check_updates_are_reduced(main, plan));
  RolePrograms out{main.clone(), startup.clone()};
  PassContext context(registry);
  context.startup = out.startup.get();
  MILLRACE_RETURN_IF_ERROR(
      run_steps(startup_steps(plan, config.collective_mode), *out.startup, context));
  MILLRACE_RETURN_IF_ERROR(run_steps(main_steps(plan, config, reduced), *out.main, context));
  if (properties != nullptr) *properties = ProgramProperties{};
  return out;
}

}  // namespace millrace::transpiler
