#include "ops/minimize/update_rule.h"

#include <algorithm>

#include "framework/op_attrs.h"

namespace millrace::ops {
namespace update_rule_ops {
namespace {

AttrValue real(double value) {
  return make_attr(static_cast<float>(value));
}

bool has_part(const std::string& name, const std::vector<std::string>& parts) {
  return std::any_of(parts.begin(), parts.end(),
                     [&](const std::string& part) { return name.find(part) != std::string::npos; });
}

constexpr Accumulator kUpdateRuleVelocity{"velocity", "Velocity", "VelocityOut"};

// Averages and powers of the adam family.
std::vector<Accumulator> moments(double beta1, double beta2) {
  return {{"moment1", "Moment1", "Moment1Out"},
          {"moment2", "Moment2", "Moment2Out"},
          {"beta1_pow_acc", "Beta1Pow", "Beta1PowOut", beta1, true, true},
          {"beta2_pow_acc", "Beta2Pow", "Beta2PowOut", beta2, true, true}};
}

struct RuleOf {
  const std::string& param;
  const std::optional<L2Decay>& decay;

  UpdateRule operator()(const Sgd&) const { return {"sgd", {}, {}, {}}; }

  UpdateRule operator()(const Momentum& m) const {
    return {"momentum",
            {kUpdateRuleVelocity},
            {{"mu", real(m.momentum)},
             {"use_nesterov", make_attr(m.use_nesterov)},
             {"regularization_method", make_attr(decay ? "l2_decay" : "")},
             {"regularization_coeff", real(decay ? decay->coeff : 0)},
             {"rescale_grad", real(m.rescale_grad)}}};
  }

  UpdateRule operator()(const LarsMomentum& m) const {
    const double weight_decay =
        has_part(param, m.exclude_from_weight_decay) ? 0 : m.lars_weight_decay;
    return {"lars_momentum",
            {kUpdateRuleVelocity},
            {{"mu", real(m.momentum)},
             {"lars_coeff", real(m.lars_coeff)},
             {"lars_weight_decay", make_attr(std::vector<float>{static_cast<float>(weight_decay)})},
             {"epsilon", real(m.epsilon)},
             {"rescale_grad", real(m.rescale_grad)}}};
  }

  UpdateRule operator()(const Adagrad& m) const {
    return {"adagrad",
            {{"moment", "Moment", "MomentOut", m.initial_accumulator_value}},
            {{"epsilon", real(m.epsilon)}}};
  }

  UpdateRule operator()(const DecayedAdagrad& m) const {
    return {"decayed_adagrad",
            {{"moment", "Moment", "MomentOut"}},
            {{"decay", real(m.decay)}, {"epsilon", real(m.epsilon)}}};
  }

  UpdateRule operator()(const Adadelta& m) const {
    return {"adadelta",
            {{"_avg_squared_grad", "AvgSquaredGrad", "AvgSquaredGradOut"},
             {"_avg_squared_update", "AvgSquaredUpdate", "AvgSquaredUpdateOut"}},
            {{"epsilon", real(m.epsilon)}, {"rho", real(m.rho)}}};
  }

  UpdateRule operator()(const RmsProp& m) const {
    return {"rmsprop",
            {{"momentum", "Moment", "MomentOut"},
             {"mean_square", "MeanSquare", "MeanSquareOut"},
             {"mean_grad", "MeanGrad", "MeanGradOut"}},
            {{"decay", real(m.rho)},
             {"epsilon", real(m.epsilon)},
             {"momentum", real(m.momentum)},
             {"centered", make_attr(m.centered)}}};
  }

  UpdateRule operator()(const Adam& m) const {
    return {"adam",
            moments(m.beta1, m.beta2),
            {{"beta1", real(m.beta1)},
             {"beta2", real(m.beta2)},
             {"epsilon", real(m.epsilon)},
             {"lazy_mode", make_attr(m.lazy_mode)}}};
  }

  UpdateRule operator()(const AdamW& m) const {
    return {"adamw",
            moments(m.beta1, m.beta2),
            {{"beta1", real(m.beta1)},
             {"beta2", real(m.beta2)},
             {"epsilon", real(m.epsilon)},
             {"lazy_mode", make_attr(m.lazy_mode)},
             {"coeff", real(m.weight_decay)},
             {"with_decay", make_attr(!has_part(param, m.exclude_from_weight_decay))}}};
  }

  UpdateRule operator()(const Adamax& m) const {
    return {"adamax",
            {{"moment", "Moment", "MomentOut"},
             {"inf_norm", "InfNorm", "InfNormOut"},
             {"beta1_pow_acc", "Beta1Pow", "", m.beta1, true}},
            {{"beta1", real(m.beta1)}, {"beta2", real(m.beta2)}, {"epsilon", real(m.epsilon)}},
            PowerUpdate{"beta1_pow_acc", m.beta1, "adamax"}};
  }

  UpdateRule operator()(const Lamb& m) const {
    const double weight_decay =
        has_part(param, m.exclude_from_weight_decay) ? 0 : m.lamb_weight_decay;
    return {"lamb",
            moments(m.beta1, m.beta2),
            {{"beta1", real(m.beta1)},
             {"beta2", real(m.beta2)},
             {"epsilon", real(m.epsilon)},
             {"weight_decay", real(weight_decay)},
             {"always_adapt", make_attr(m.always_adapt)}}};
  }

  UpdateRule operator()(const Ftrl& m) const {
    return {"ftrl",
            {{"squared", "SquaredAccumulator", "SquaredAccumOut"},
             {"linear", "LinearAccumulator", "LinearAccumOut"}},
            {{"l1", real(m.l1)}, {"l2", real(m.l2)}, {"lr_power", real(m.lr_power)}}};
  }

  UpdateRule operator()(const Dpsgd& m) const {
    return {"dpsgd",
            {},
            {{"clip", real(m.clip)}, {"batch_size", real(m.batch_size)}, {"sigma", real(m.sigma)}}};
  }
};

}  // namespace
}  // namespace update_rule_ops

UpdateRule update_rule(const UpdateMethod& method, const std::string& param,
                       const std::optional<L2Decay>& decay) {
  UpdateRule rule = std::visit(update_rule_ops::RuleOf{param, decay}, method);
  rule.single_precision_state =
      std::holds_alternative<Adam>(method) || std::holds_alternative<AdamW>(method) ||
      std::holds_alternative<Adamax>(method) || std::holds_alternative<Lamb>(method);
  return rule;
}

bool fuses_l2(const UpdateMethod& method) {
  const auto* const momentum = std::get_if<Momentum>(&method);
  return momentum != nullptr && momentum->fuse_l2;
}

bool is_multi_precision(const UpdateMethod& method) {
  return std::visit(
      [](const auto& m) {
        if constexpr (requires { m.multi_precision; }) return m.multi_precision;
        return false;
      },
      method);
}

}  // namespace millrace::ops
