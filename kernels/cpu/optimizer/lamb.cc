#include <algorithm>
#include <cmath>

#include "kernels/cpu/lane_sum.h"
#include "kernels/cpu/optimizer/moments.h"
#include "kernels/registry.h"

namespace millrace::kernels {
namespace lamb_kernels {
namespace {

using optimizer::MomentSettings;
using optimizer::MomentSlots;
using optimizer::Sparse;
using optimizer::UpdateSlots;
using optimizer::UpdateTensors;

// First pass of an update; the second pass needs the norms over all elements.
template <typename T>
struct Moments {
  T beta1;
  T beta2;
  void operator()(T& /*param*/, T grad, T& moment1, T& moment2) const {
    moment1 = beta1 * moment1 + (1 - beta1) * grad;
    moment2 = beta2 * moment2 + (1 - beta2) * grad * grad;
  }
};

// Direction of the update; recomputing it is cheap enough that it is not stored.
template <typename T>
struct Direction {
  const T* param;
  const T* moment1;
  const T* moment2;
  T correction1;
  T correction2;
  T epsilon;
  T decay;
  T operator()(int64_t i) const {
    return moment1[i] * correction1 / (std::sqrt(moment2[i] * correction2) + epsilon) +
           decay * param[i];
  }
};

struct LambState {
  UpdateSlots slots;
  MomentSlots moments;
  RowMerger merger;
  double decay = 0;
  bool adapt = true;
};

constexpr int64_t kLambBlock = 16384;

// Factor of the rate: norm of the parameter divided by norm of the direction.
template <typename T>
double trust(const Direction<T>& direction, int64_t count, CpuDevice& device) {
  const int64_t blocks = (count + kLambBlock - 1) / kLambBlock;
  llvm::SmallVector<std::pair<double, double>, 64> sums(static_cast<size_t>(blocks));
  device.parallel_for(blocks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      const int64_t first = b * kLambBlock;
      const int64_t size = std::min(kLambBlock, count - first);
      const auto square = [](T x) { return x * x; };
      sums[static_cast<size_t>(b)] = {
          lane_sum<T>(size, [&](int64_t i) { return square(direction.param[first + i]); }),
          lane_sum<T>(size, [&](int64_t i) { return square(direction(first + i)); })};
    }
  });
  double params = 0;
  double steps = 0;
  for (const auto& [param, step] : sums) {
    params += param;
    steps += step;
  }
  return params > 0 && steps > 0 ? std::sqrt(params / steps) : 1.0;
}

template <typename T>
void take_step(const Direction<T>& direction, T* param, T rate, int64_t count, CpuDevice& device) {
  device.parallel_for(count, optimizer::kUpdateGrain, [&](int64_t begin, int64_t end) {
    const Direction<T> d = direction;
    for (int64_t i = begin; i < end; ++i) param[i] -= rate * d(i);
  });
}

Status run(const KernelContext& ctx, LambState& state) {
  MILLRACE_ASSIGN_OR_RETURN(const MomentSettings s, optimizer::moment_settings(ctx, state.moments));
  MILLRACE_ASSIGN_OR_RETURN(const UpdateTensors t, update_tensors(ctx, state.slots));
  if (s.skip || t.nothing_to_do()) return optimizer::update_powers(ctx, state.moments, s, t);
  if (dtype_size(t.param->dtype()) == 2)
    return {StatusCode::kUnimplemented, "lamb of 16-bit parameters"};
  MILLRACE_RETURN_IF_ERROR(
      optimizer::update<2>(ctx, t, Sparse::kAllRows, state.merger, [&](auto rate) {
        using T = decltype(rate);
        return Moments<T>{static_cast<T>(s.beta1), static_cast<T>(s.beta2)};
      }));
  MILLRACE_RETURN_IF_ERROR(dispatch<FloatTypes>(t.param->dtype(), [&](auto tag) -> Status {
    using T = typename decltype(tag)::type;
    const Direction<T> direction{t.param->data<T>(),
                                 t.states[0]->data<T>(),
                                 t.states[1]->data<T>(),
                                 1 / (1 - static_cast<T>(s.beta1_pow)),
                                 1 / (1 - static_cast<T>(s.beta2_pow)),
                                 static_cast<T>(s.epsilon),
                                 static_cast<T>(state.decay)};
    const int64_t count = t.param->numel();
    const double factor = state.adapt ? trust(direction, count, ctx.device()) : 1.0;
    take_step(direction, t.param->data<T>(), static_cast<T>(t.rate * factor), count, ctx.device());
    return Ok();
  }));
  return optimizer::update_powers(ctx, state.moments, s, t);
}

StatusOr<Kernel> lamb(const KernelSetup& op) {
  auto state = std::make_shared<LambState>();
  state->slots =
      optimizer::update_slots(op, {{"Moment1", "Moment1Out"}, {"Moment2", "Moment2Out"}});
  state->moments = optimizer::moment_slots(op);
  state->decay = op.attr<float>("weight_decay");
  state->adapt = state->decay > 0 || op.attr<bool>("always_adapt");
  return Kernel([state](const KernelContext& ctx) { return run(ctx, *state); });
}

}  // namespace
}  // namespace lamb_kernels

void add_optimizer_lamb(KernelRegistry& registry) {
  registry.add("lamb", lamb_kernels::lamb);
}

}  // namespace millrace::kernels
