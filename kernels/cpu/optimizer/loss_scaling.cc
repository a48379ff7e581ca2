#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>

#include "kernels/cpu/scalar.h"
#include "kernels/dispatch.h"
#include "kernels/registry.h"

namespace millrace::kernels {
namespace loss_scaling {
namespace {

constexpr int64_t kLossScalingGrain = 32768;

// x - x is 0 for finite numbers and NaN for all others, and a sum keeps NaN: no branches needed.
template <typename T>
bool all_finite(const T* x, int64_t count) {
  using C = Compute<T>;
  constexpr int64_t kLanes = 16;
  C lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int64_t k = 0; k < kLanes; ++k)
      lanes[k] += static_cast<C>(x[i + k]) - static_cast<C>(x[i + k]);
  }
  for (; i < count; ++i) lanes[0] += static_cast<C>(x[i]) - static_cast<C>(x[i]);
  C sum = 0;
  for (const C lane : lanes) sum += lane;
  return sum == 0;
}

template <typename T>
bool all_finite(const Tensor& x, CpuDevice& device) {
  std::atomic<bool> finite = true;
  device.parallel_for(x.numel(), kLossScalingGrain, [&](int64_t begin, int64_t end) {
    if (!all_finite(x.data<T>() + begin, end - begin)) finite = false;
  });
  return finite;
}

template <typename T>
void multiply(const Tensor& x, Tensor& out, double factor, CpuDevice& device) {
  device.parallel_for(x.numel(), kLossScalingGrain, [&](int64_t begin, int64_t end) {
    using C = Compute<T>;
    const C f = static_cast<C>(factor);
    const T* const from = x.data<T>();
    T* const to = out.data<T>();
    for (int64_t i = begin; i < end; ++i) to[i] = static_cast<T>(static_cast<C>(from[i]) * f);
  });
}

// All gradients are checked before the first one is scaled. If one is not finite, all are therefore
// set to zero (or NaN where they were not finite).
StatusOr<Kernel> check_finite_and_unscale(const KernelSetup& op) {
  const ArgRange x = op.inputs("X");
  const ArgRange out = op.outputs("Out");
  const ArgIndex scale = op.input("Scale");
  const ArgIndex found = op.output("FoundInfinite");
  if (x.count != out.count)
    return op.error("X and Out must have the same number of vars, found {} and {}", x.count,
                    out.count);
  return Kernel([=](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const double divisor, first_number(ctx.in(scale), "Scale"));
    bool finite = true;
    for (int32_t k = 0; k < x.count && finite; ++k) {
      MILLRACE_RETURN_IF_ERROR(
          dispatch<AllFloatTypes>(ctx.in(x, k).dtype(), [&](auto tag) -> Status {
            finite = all_finite<typename decltype(tag)::type>(ctx.in(x, k), ctx.device());
            return Ok();
          }));
    }
    *ctx.out(found).data<bool>() = !finite;
    for (int32_t k = 0; k < x.count; ++k) {
      MILLRACE_RETURN_IF_ERROR(
          dispatch<AllFloatTypes>(ctx.in(x, k).dtype(), [&](auto tag) -> Status {
            multiply<typename decltype(tag)::type>(ctx.in(x, k), ctx.out(out, k),
                                                   finite ? 1 / divisor : 0, ctx.device());
            return Ok();
          }));
    }
    return Ok();
  });
}

struct ScalingRule {
  int32_t raise_after = 0;
  int32_t lower_after = 0;
  double raise = 0;
  double lower = 0;
};

struct ScalingState {
  double scale = 0;
  int32_t good = 0;
  int32_t bad = 0;
};

ScalingState next_state(ScalingState s, const ScalingRule& rule, bool found) {
  if (found) {
    s.good = 0;
    if (++s.bad == rule.lower_after) {
      s.scale = std::max(s.scale * rule.lower, 1.0);
      s.bad = 0;
    }
  } else {
    s.bad = 0;
    if (++s.good == rule.raise_after) {
      const double raised = s.scale * rule.raise;
      if (std::isfinite(static_cast<float>(raised))) s.scale = raised;
      s.good = 0;
    }
  }
  return s;
}

struct ScalingSlots {
  ArgIndex scale;
  ArgIndex good;
  ArgIndex bad;
  ArgIndex scale_out;
  ArgIndex good_out;
  ArgIndex bad_out;
};

Status move_on(const KernelContext& ctx, const ScalingSlots& slots, const ScalingRule& rule,
               bool found, bool stop) {
  ScalingState s;
  MILLRACE_ASSIGN_OR_RETURN(s.scale, first_number(ctx.in(slots.scale), "PrevLossScaling"));
  MILLRACE_ASSIGN_OR_RETURN(const double good, first_number(ctx.in(slots.good), "InGoodSteps"));
  MILLRACE_ASSIGN_OR_RETURN(const double bad, first_number(ctx.in(slots.bad), "InBadSteps"));
  s.good = static_cast<int32_t>(good);
  s.bad = static_cast<int32_t>(bad);
  if (!stop) s = next_state(s, rule, found);
  if (ctx.out(slots.good_out).dtype() != DType::kInt32 ||
      ctx.out(slots.bad_out).dtype() != DType::kInt32)
    return ctx.error("InGoodSteps and InBadSteps must be i32");
  *ctx.out(slots.good_out).data<int32_t>() = s.good;
  *ctx.out(slots.bad_out).data<int32_t>() = s.bad;
  return dispatch<FloatTypes>(ctx.out(slots.scale_out).dtype(), [&](auto tag) -> Status {
    using T = typename decltype(tag)::type;
    *ctx.out(slots.scale_out).data<T>() = static_cast<T>(s.scale);
    return Ok();
  });
}

Status pass_on(const Tensor& x, Tensor& out, bool zero) {
  if (zero) {
    std::memset(out.raw(), 0, static_cast<size_t>(out.bytes()));
    return Ok();
  }
  return out.shares_memory_with(x) ? Ok() : out.copy_from(x);
}

StatusOr<Kernel> update_loss_scaling(const KernelSetup& op) {
  const ArgRange x = op.inputs("X");
  const ArgRange out = op.outputs("Out");
  const ArgIndex found = op.input("FoundInfinite");
  const ArgIndex stop_tensor = op.input("StopUpdate");
  const bool stop_attr = op.attr<bool>("stop_update");
  const ScalingSlots slots{op.input("PrevLossScaling"), op.input("InGoodSteps"),
                           op.input("InBadSteps"),      op.output("LossScaling"),
                           op.output("OutGoodSteps"),   op.output("OutBadSteps")};
  const ScalingRule rule{op.attr<int32_t>("incr_every_n_steps"),
                         op.attr<int32_t>("decr_every_n_nan_or_inf"), op.attr<float>("incr_ratio"),
                         op.attr<float>("decr_ratio")};
  if (x.count != out.count)
    return op.error("X and Out must have the same number of vars, found {} and {}", x.count,
                    out.count);
  return Kernel([=](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const double bad, first_number(ctx.in(found), "FoundInfinite"));
    bool stop = stop_attr;
    if (const Tensor* const given = ctx.find_in(stop_tensor)) {
      MILLRACE_ASSIGN_OR_RETURN(const double value, first_number(*given, "StopUpdate"));
      stop = value != 0;
    }
    MILLRACE_RETURN_IF_ERROR(move_on(ctx, slots, rule, bad != 0, stop));
    for (int32_t k = 0; k < x.count; ++k)
      MILLRACE_RETURN_IF_ERROR(pass_on(ctx.in(x, k), ctx.out(out, k), bad != 0));
    return Ok();
  });
}

}  // namespace
}  // namespace loss_scaling

void add_optimizer_loss_scaling(KernelRegistry& registry) {
  using namespace loss_scaling;
  registry.add("check_finite_and_unscale", check_finite_and_unscale);
  registry.add("update_loss_scaling", update_loss_scaling);
}

}  // namespace millrace::kernels
