#include "ops/optimizer/update_op.h"
#include "ops/registry.h"

namespace millrace::ops {
namespace {

void add_plain(OpRegistry& registry) {
  OpDef sgd = update_op("sgd", "Param - LearningRate * Grad", {});
  registry.add(with_master_param(sgd).flops(update_flops<2>));

  OpDef momentum = update_op("momentum", "v = mu * v + Grad; Param - LearningRate * v",
                             {{"Velocity", "VelocityOut", "velocity"}});
  registry.add(with_master_param(momentum)
                   .required_attr<float>("mu", "share of the old velocity")
                   .attr("use_nesterov", false, "use Nesterov momentum")
                   .attr("regularization_method", "", "decay that is fused into the update")
                   .one_of({"", "l2_decay"})
                   .attr("regularization_coeff", 0.0F, "factor of the decay")
                   .attr("rescale_grad", 1.0F, "Grad is multiplied by it first")
                   .flops(update_flops<5>));

  registry.add(update_op("dpsgd", "sgd with a clipped gradient and normal noise", {})
                   .attr("clip", 10.0F, "largest norm of the gradient")
                   .attr("batch_size", 16.0F, "divides the noise")
                   .attr("sigma", 1.0F, "standard deviation of the noise before division")
                   .range(0)
                   .attr("seed", 0, "0: from the clock")
                   .flops(update_flops<8>));
}

void add_adaptive(OpRegistry& registry) {
  OpDef adagrad =
      update_op("adagrad", "rate divided by the square root of the sum of squared gradients",
                {{"Moment", "MomentOut", "sum of squared gradients"}});
  registry.add(with_master_param(adagrad)
                   .attr("epsilon", 1e-6F, "added to the root")
                   .range(0)
                   .flops(update_flops<6>));

  registry.add(update_op("decayed_adagrad", "adagrad with a decaying sum",
                         {{"Moment", "MomentOut", "decayed sum of squared gradients"}})
                   .attr("decay", 0.95F, "share of the old sum")
                   .attr("epsilon", 1e-6F, "added to the root")
                   .range(0)
                   .flops(update_flops<8>));

  OpDef adadelta =
      update_op("adadelta", "update from the ratio of running averages of updates and gradients",
                {{"AvgSquaredGrad", "AvgSquaredGradOut", "running average of squared gradients"},
                 {"AvgSquaredUpdate", "AvgSquaredUpdateOut", "running average of squared updates"}},
                Arity::kOptional);  // programs until 2020 have no rate: the update is not scaled
  registry.add(with_master_param(adadelta)
                   .attr("rho", 0.95F, "share of the old averages")
                   .attr("epsilon", 1e-6F, "added under the roots")
                   .range(0)
                   .flops(update_flops<13>));

  OpDef rmsprop = update_op(
      "rmsprop", "rate divided by the square root of a running average of squared gradients",
      {{"MeanSquare", "MeanSquareOut", "running average of squared gradients"},
       {"Moment", "MomentOut", "running update"},
       {"MeanGrad", "MeanGradOut", "running average of gradients, read if centered",
        Arity::kOptional}});
  registry.add(with_master_param(rmsprop)
                   .attr("decay", 0.9F, "share of the old averages")
                   .attr("epsilon", 1e-10F, "added under the root")
                   .range(0)
                   .attr("momentum", 0.0F, "share of the old update")
                   .attr("centered", false, "subtract the squared average of the gradients")
                   .flops(update_flops<10>));
}

void add_proximal(OpRegistry& registry) {
  registry.add(update_op("ftrl", "follow the regularized leader",
                         {{"SquaredAccumulator", "SquaredAccumOut", "sum of squared gradients"},
                          {"LinearAccumulator", "LinearAccumOut", "sum of corrected gradients"}})
                   .attr("l1", 0.0F, "weight of the absolute values")
                   .attr("l2", 0.0F, "weight of the squares")
                   .attr("lr_power", -0.5F, "power of the squared accumulator in the rate")
                   .flops(update_flops<15>));
  registry.add(update_op("proximal_gd", "sgd, then shrinkage by l1 and l2", {})
                   .attr("l1", 0.0F, "weight of the absolute values")
                   .attr("l2", 0.0F, "weight of the squares")
                   .flops(update_flops<7>));
  registry.add(update_op("proximal_adagrad", "adagrad, then shrinkage by l1 and l2",
                         {{"Moment", "MomentOut", "sum of squared gradients"}})
                   .attr("l1", 0.0F, "weight of the absolute values")
                   .attr("l2", 0.0F, "weight of the squares")
                   .flops(update_flops<11>));
}

}  // namespace

/// Ops that update one parameter from its gradient, and ops that update a list of parameters. All
/// work in place: ParamOut is the var of Param, and likewise for each state.
void add_optimizer_updates(OpRegistry& registry) {
  add_plain(registry);
  add_adaptive(registry);
  add_proximal(registry);
}

}  // namespace millrace::ops
