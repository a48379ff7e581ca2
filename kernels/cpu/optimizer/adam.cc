#include <algorithm>
#include <cmath>

#include "kernels/cpu/optimizer/moments.h"
#include "kernels/registry.h"

namespace millrace::kernels {
namespace adam_kernels {
namespace {

using optimizer::moment_settings;
using optimizer::moment_slots;
using optimizer::MomentSettings;
using optimizer::MomentSlots;
using optimizer::Sparse;
using optimizer::update_slots;
using optimizer::update_tensors;
using optimizer::UpdateSlots;
using optimizer::UpdateTensors;

template <typename T>
struct Adam {
  T rate;     // with the bias correction of both moments
  T epsilon;  // with the bias correction of the second moment
  T beta1;
  T beta2;
  T kept;           // share of the parameter that remains after weight decay
  T plain_epsilon;  // without the bias correction
  // As in the original, rows without a gradient use the uncorrected epsilon.
  [[nodiscard]] Adam for_absent_rows() const {
    return {rate, plain_epsilon, beta1, beta2, kept, plain_epsilon};
  }
  void operator()(T& param, T grad, T& moment1, T& moment2) const {
    moment1 = beta1 * moment1 + (1 - beta1) * grad;
    moment2 = beta2 * moment2 + (1 - beta2) * grad * grad;
    param = kept * param - rate * (moment1 / (std::sqrt(moment2) + epsilon));
  }
};

struct AdamState {
  UpdateSlots slots;
  MomentSlots moments;
  RowMerger merger;
  Sparse sparse = Sparse::kAllRows;
  double decay = 0;  // multiplied by the learning rate
};

// The formula with the given powers of the betas, which determine the bias correction.
auto adam_formula(const MomentSettings& s, double decay, double beta1_pow, double beta2_pow) {
  return [&s, decay, beta1_pow, beta2_pow](auto rate) {
    using T = decltype(rate);
    // computed in the type of the elements, in which the powers are also stored
    const T correction = std::sqrt(1 - static_cast<T>(beta2_pow));
    return Adam<T>{rate * correction / (1 - static_cast<T>(beta1_pow)),
                   static_cast<T>(s.epsilon) * correction,
                   static_cast<T>(s.beta1),
                   static_cast<T>(s.beta2),
                   1 - rate * static_cast<T>(decay),
                   static_cast<T>(s.epsilon)};
  };
}

bool is_in_place(const KernelContext& ctx, ArgIndex in, ArgIndex out) {
  return in && out && &ctx.in_value(in) == &ctx.out_value(out);
}

// Two peculiarities of the original that affect its results. With a sparse gradient, the powers are
// multiplied before the update; if Beta1Pow and Beta2Pow are also the outputs, the update then
// reads the multiplied values. The learning rate ratio of adamw applies to the decay only.
Status run(const KernelContext& ctx, AdamState& state) {
  MILLRACE_ASSIGN_OR_RETURN(const MomentSettings s, optimizer::moment_settings(ctx, state.moments));
  if (!s.skip && optimizer::update_few<2>(ctx, state.slots,
                                          adam_formula(s, state.decay, s.beta1_pow, s.beta2_pow)))
    return optimizer::update_powers(ctx, state.moments, s, {});
  MILLRACE_ASSIGN_OR_RETURN(const UpdateTensors t, update_tensors(ctx, state.slots));
  if (!s.skip) {
    const bool first = t.rows != nullptr && !state.moments.keep_powers;
    const MomentSlots& m = state.moments;
    const bool first1 = first && is_in_place(ctx, m.beta1_pow, m.beta1_pow_out);
    const bool first2 = first && is_in_place(ctx, m.beta2_pow, m.beta2_pow_out);
    const double beta1_pow = first1 ? s.beta1_pow * s.beta1 : s.beta1_pow;
    const double beta2_pow = first2 ? s.beta2_pow * s.beta2 : s.beta2_pow;
    MILLRACE_RETURN_IF_ERROR(optimizer::update<2>(
        ctx, t, state.sparse, state.merger, adam_formula(s, state.decay, beta1_pow, beta2_pow)));
  }
  return optimizer::update_powers(ctx, state.moments, s, t);
}

std::shared_ptr<AdamState> adam_state(const KernelSetup& op, size_t k = 0) {
  auto state = std::make_shared<AdamState>();
  state->slots = update_slots(op, {{"Moment1", "Moment1Out"}, {"Moment2", "Moment2Out"}}, k);
  optimizer::accept_layouts(op, state->slots);
  state->moments = moment_slots(op, k);
  return state;
}

std::shared_ptr<AdamState> single_adam_state(const KernelSetup& op) {
  auto state = adam_state(op);
  if (op.attr<bool>("lazy_mode")) state->sparse = Sparse::kOwnRows;
  return state;
}

StatusOr<Kernel> adam_kernel(const KernelSetup& op) {
  return Kernel(
      [state = single_adam_state(op)](const KernelContext& ctx) { return run(ctx, *state); });
}

StatusOr<Kernel> merged(const KernelSetup& op) {
  std::vector<std::shared_ptr<AdamState>> states;
  for (size_t k = 0; k < static_cast<size_t>(op.inputs("Param").count); ++k)
    states.push_back(adam_state(op, k));
  return Kernel(
      [states, params = optimizer::parameter_names(op)](const KernelContext& ctx) -> Status {
        for (size_t k = 0; k < states.size(); ++k) {
          if (Status status = run(ctx, *states[k]); !status.ok())
            return optimizer::in_parameter(std::move(status), params, k);
        }
        return Ok();
      });
}

StatusOr<Kernel> adamw(const KernelSetup& op) {
  const auto state = single_adam_state(op);
  if (op.attr<bool>("with_decay"))
    state->decay = static_cast<double>(op.attr<float>("coeff")) * op.attr<float>("lr_ratio");
  return Kernel([state](const KernelContext& ctx) { return run(ctx, *state); });
}

template <typename T>
struct Adamax {
  T rate;
  T beta1;
  T beta2;
  T epsilon;
  void operator()(T& param, T grad, T& moment, T& norm) const {
    moment = beta1 * moment + (1 - beta1) * grad;
    norm = std::max(std::abs(grad), beta2 * norm + epsilon);
    param -= rate * (moment / norm);
  }
};

StatusOr<Kernel> adamax(const KernelSetup& op) {
  UpdateSlots slots = update_slots(op, {{"Moment", "MomentOut"}, {"InfNorm", "InfNormOut"}});
  const MomentSlots moments = moment_slots(op);
  auto merger = std::make_shared<RowMerger>();
  return Kernel([=](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const MomentSettings s, moment_settings(ctx, moments));
    MILLRACE_ASSIGN_OR_RETURN(const UpdateTensors t, update_tensors(ctx, slots));
    return optimizer::update<2>(ctx, t, Sparse::kAllRows, *merger, [&](auto rate) {
      using T = decltype(rate);
      return Adamax<T>{rate / (1 - static_cast<T>(s.beta1_pow)), static_cast<T>(s.beta1),
                       static_cast<T>(s.beta2), static_cast<T>(s.epsilon)};
    });
  });
}

}  // namespace
}  // namespace adam_kernels

void add_optimizer_adam(KernelRegistry& registry) {
  using namespace adam_kernels;
  registry.add("adam", adam_kernel);
  registry.add("adamw", adamw);
  registry.add("adamax", adamax);
  registry.add("merged_adam", merged);
}

}  // namespace millrace::kernels
