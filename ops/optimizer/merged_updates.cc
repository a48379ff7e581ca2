#include "ops/optimizer/update_op.h"
#include "ops/registry.h"

namespace millrace::ops {
namespace {

constexpr StateSlots kMergedUpdatesVelocity{"Velocity", "VelocityOut", "velocities"};

}  // namespace

void add_optimizer_merged_updates(OpRegistry& registry) {
  OpDef lars = merged_update_op(
      "lars_momentum", "momentum with a rate that follows the norms of parameter and gradient",
      {kMergedUpdatesVelocity});
  registry.add(with_master_param(lars, Arity::kAny)
                   .required_attr<float>("mu", "share of the old velocity")
                   .attr("lars_coeff", 0.001F, "factor of the local rate")
                   .attr("lars_weight_decay", std::vector<float>{0.0005F},
                         "weight decay, one per parameter or one for all")
                   .attr("epsilon", 0.0F, "added to the divisor of the local rate")
                   .range(0)
                   .attr("rescale_grad", 1.0F, "Grad is multiplied by it first")
                   .flops(update_flops<10>));

  OpDef sgd = merged_update_op(
      "merged_sgd", "sgd for several parameters; only in millrace, made by merge-updates", {});
  registry.add(with_master_param(sgd, Arity::kAny).flops(update_flops<2>));

  OpDef merged = merged_update_op("merged_momentum", "momentum for several parameters",
                                  {kMergedUpdatesVelocity});
  registry.add(with_master_param(merged, Arity::kAny)
                   .required_attr<float>("mu", "share of the old velocity")
                   .attr("use_nesterov", false, "use Nesterov momentum")
                   .attr("regularization_method", std::vector<std::string>{},
                         "decay that is fused into the update, one per parameter")
                   .attr("regularization_coeff", std::vector<float>{}, "factors of the decay")
                   .attr("rescale_grad", 1.0F, "Grad is multiplied by it first")
                   .flops(update_flops<5>));
}

}  // namespace millrace::ops
