#include "ops/optimizer/update_op.h"
#include "ops/registry.h"

namespace millrace::ops {
namespace {

constexpr StateSlots kFirstMoment{"Moment1", "Moment1Out", "running average of gradients"};
constexpr StateSlots kSecondMoment{"Moment2", "Moment2Out", "running average of squared gradients"};
constexpr StateSlots kBeta1Pow{"Beta1Pow", "Beta1PowOut",
                               "beta1 to the power of the step, 1 element"};
constexpr StateSlots kBeta2Pow{"Beta2Pow", "Beta2PowOut",
                               "beta2 to the power of the step, 1 element"};

OpDef& betas(OpDef& def, float epsilon) {
  return def.attr("beta1", 0.9F, "share of the old first moment")
      .range(0, 1)
      .attr("beta2", 0.999F, "share of the old second moment")
      .range(0, 1)
      .attr("epsilon", epsilon, "added to the root")
      .range(0);
}

OpDef adam_like(llvm::StringRef type, llvm::StringRef doc) {
  OpDef def = update_op(type, doc, {kFirstMoment, kSecondMoment, kBeta1Pow, kBeta2Pow});
  betas(with_master_param(def), 1e-8F)
      .input("SkipUpdate", "one bool; true leaves everything as it is", Arity::kOptional)
      .input("Beta1Tensor", "replaces beta1", Arity::kOptional)
      .input("Beta2Tensor", "replaces beta2", Arity::kOptional)
      .input("EpsilonTensor", "replaces epsilon", Arity::kOptional)
      .attr("lazy_mode", false, "a sparse gradient updates only the rows that it holds")
      .attr("min_row_size_to_use_multithread", int64_t{1000}, "tuning of the original; no effect")
      .attr("use_global_beta_pow", false, "other ops update the powers")
      .flops(update_flops<14>);
  return def;
}

}  // namespace

void add_optimizer_adam(OpRegistry& registry) {
  registry.add(adam_like("adam", "update from bias-corrected first and second moments"));
  registry.add(adam_like("adamw", "adam with weight decay decoupled from the gradient")
                   .attr("lr_ratio", 1.0F, "factor of LearningRate")
                   .attr("coeff", 0.01F, "weight decay per step, times the rate")
                   .attr("with_decay", false, "whether to decay at all")
                   .flops(update_flops<16>));

  OpDef merged = merged_update_op("merged_adam", "adam for several parameters",
                                  {kFirstMoment, kSecondMoment, kBeta1Pow, kBeta2Pow});
  registry.add(betas(with_master_param(merged, Arity::kAny), 1e-8F)
                   .attr("use_global_beta_pow", false, "other ops update the powers")
                   .flops(update_flops<14>));

  OpDef adamax = update_op(
      "adamax", "adam with a decayed maximum of absolute gradients in place of the second moment",
      {{"Moment", "MomentOut", "running average of gradients"},
       {"InfNorm", "InfNormOut", "decayed maximum of absolute gradients"}});
  adamax.input("Beta1Pow", "beta1 to the power of the step, 1 element");
  registry.add(betas(with_master_param(adamax), 1e-8F).flops(update_flops<9>));

  OpDef lamb = update_op("lamb", "adam update scaled by the norms of parameter and update",
                         {kFirstMoment, kSecondMoment, kBeta1Pow, kBeta2Pow});
  registry.add(
      betas(with_master_param(lamb), 1e-6F)
          .input("SkipUpdate", "one bool; true leaves everything as it is", Arity::kOptional)
          .required_attr<float>("weight_decay", "weight decay that is added to the update")
          .attr("always_adapt", false, "scale by the norms even without decay")
          .flops(update_flops<20>));
}

}  // namespace millrace::ops
