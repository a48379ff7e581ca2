#include "transpiler/distribute/collective.h"

#include <algorithm>

#include <fmt/format.h>

#include "transpiler/distribute/collective_plan.h"

namespace millrace::transpiler {
namespace {

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

// The pipeline of the mode; `reduced` is the number of gradients to reduce.
std::string collective_pipeline(const CollectivePlan& plan,
                                const DistributeTranspilerConfig& config, int64_t reduced) {
  const std::string init = "collective-init-communicators";
  const std::string start = init + ",collective-broadcast-parameters";
  const auto scale = [](double factor) {
    return fmt::format(",collective-scale-loss-gradient{{factor={}}}", factor);
  };
  const auto ranks = static_cast<double>(plan.ranks);
  if (config.collective_mode == "local_sgd")
    return start + ",collective-snapshot-parameters,collective-average-updates";
  if (config.collective_mode == "grad_allreduce")
    return start + scale(1.0 / ranks) + ",collective-allreduce-gradients";
  std::string out = init;
  if (config.scale_loss_gradient) {
    const auto devices = static_cast<double>(std::max<int64_t>(plan.device_count, 1));
    out += scale(1.0 / (reduced > 0 ? ranks : 1.0) / devices);
  }
  if (reduced > 0) {
    out +=
        plan.fuse_allreduce > 0 ? ",collective-allreduce-fused" : ",collective-allreduce-gradients";
  }
  return out;
}

}  // namespace

StatusOr<RolePrograms> transpile_collective(const Program& main, const Program& startup,
                                            const DistributeTranspilerConfig& config,
                                            const TranspileArguments& arguments,
                                            const ops::OpRegistry& registry,
                                            ProgramProperties* properties,
                                            PassManagerOptions pass_options) {
  MILLRACE_ASSIGN_OR_RETURN(CollectivePlan plan, plan_collective(main, startup, config, arguments));
  // Counted on the input program, so that an invalid op is reported with its original index.
  MILLRACE_ASSIGN_OR_RETURN(const int64_t reduced, count_reduced(main, plan));
  if (config.collective_mode != "local_sgd")
    MILLRACE_RETURN_IF_ERROR(check_updates_are_reduced(main, plan));
  RolePrograms out{main.clone(), startup.clone()};
  PassContext context(registry);
  context.startup = out.startup.get();
  context.job = &plan;
  pass_options.error_note = ErrorNote::kPass;
  MILLRACE_RETURN_IF_ERROR(
      run_distribution(collective_pipeline(plan, config, reduced), *out.main, context, pass_options)
          .status());
  if (properties != nullptr) *properties = ProgramProperties{};
  return out;
}

}  // namespace millrace::transpiler
