#include <algorithm>
#include <string>

#include "kernels/cpu/lane_sum.h"
#include "kernels/cpu/loss/pointwise.h"
#include "kernels/cpu/vector_math.h"
#include "kernels/registry.h"

// Divergence of distributions, and label smoothing.
namespace millrace::kernels {
namespace {

// The divisor of the sum of all values.
double divisor_of(const std::string& reduction, const Tensor& x) {
  if (reduction == "mean") return static_cast<double>(std::max<int64_t>(x.numel(), 1));
  if (reduction == "batchmean" && x.rank() > 0)
    return static_cast<double>(std::max<int64_t>(x.dim(0), 1));
  return 1;
}

StatusOr<Kernel> kldiv_loss(const KernelSetup& op) {
  const auto term = [](auto x, auto target) {
    return target > 0 ? target * (vmath::log(target) - x) : target * 0;
  };
  const auto reduction = op.attr<std::string>("reduction");
  if (reduction == "none") return map_kernel<2>(op, {"X", "Target"}, "Loss", term);
  const ArgIndex x = op.input("X");
  const ArgIndex target = op.input("Target");
  const ArgIndex loss = op.output("Loss");
  return Kernel([=](const KernelContext& ctx) -> Status {
    const Tensor& from = ctx.in(x);
    const Tensor& to = ctx.in(target);
    if (to.numel() != from.numel() || to.dtype() != from.dtype())
      return ctx.error("Target must match X {}, found {}", describe(from), describe(to));
    return dispatch<FloatTypes>(from.dtype(), [&](auto tag) -> Status {
      using T = typename decltype(tag)::type;
      const T* const p = from.data<T>();
      const T* const q = to.data<T>();
      const T sum = lane_sum<T>(from.numel(), [&](int64_t i) { return term(p[i], q[i]); });
      *ctx.out(loss).data<T>() = sum / static_cast<T>(divisor_of(reduction, from));
      return Ok();
    });
  });
}

StatusOr<Kernel> kldiv_loss_grad(const KernelSetup& op) {
  const auto reduction = op.attr<std::string>("reduction");
  if (reduction == "none") {
    return map_kernel<2>(op, {"Target", "Loss@GRAD"}, "X@GRAD", [](auto target, auto dloss) {
      return target > 0 ? -target * dloss : target * 0;
    });
  }
  const ArgIndex target = op.input("Target");
  const ArgIndex dloss = op.input("Loss@GRAD");
  const ArgIndex dx = op.output("X@GRAD");
  return Kernel([=](const KernelContext& ctx) -> Status {
    if (!dx) return Ok();
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const to, needed(ctx, target, "Target"));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const d, needed(ctx, dloss, "Loss@GRAD"));
    if (d->numel() != 1 || d->dtype() != to->dtype())
      return ctx.error("Loss@GRAD must have one element, found {}", describe(*d));
    MILLRACE_ASSIGN_OR_RETURN(Tensor* const out, result_like(ctx, dx, *to));
    return dispatch<FloatTypes>(to->dtype(), [&](auto tag) -> Status {
      using T = typename decltype(tag)::type;
      const T scale = *d->data<T>() / static_cast<T>(divisor_of(reduction, *to));
      const T* const q = to->data<T>();
      T* const g = out->data<T>();
      for (int64_t i = 0; i < to->numel(); ++i) g[i] = q[i] > 0 ? -q[i] * scale : T(0);
      return Ok();
    });
  });
}

StatusOr<Kernel> label_smooth(const KernelSetup& op) {
  const ArgIndex x = op.input("X");
  const ArgIndex prior = op.input("PriorDist");
  const ArgIndex out = op.output("Out");
  const double epsilon = op.attr<float>("epsilon");
  return Kernel([=](const KernelContext& ctx) -> Status {
    const Tensor& from = ctx.in(x);
    const Tensor* const given = ctx.find_in(prior);
    const int64_t classes = from.rank() == 0 ? 1 : from.dim(-1);
    if (given != nullptr && (given->numel() != classes || given->dtype() != from.dtype()))
      return ctx.error("PriorDist must have one value per class of X {}, found {}", describe(from),
                       describe(*given));
    return dispatch<FloatTypes>(from.dtype(), [&](auto tag) -> Status {
      using T = typename decltype(tag)::type;
      const T e = static_cast<T>(epsilon);
      const T uniform = classes == 0 ? T(0) : e / static_cast<T>(classes);
      for (int64_t at = 0; at < from.numel(); at += classes) {
        const T* const row = from.data<T>() + at;
        T* const to = ctx.out(out).data<T>() + at;
        if (given == nullptr) {
          for (int64_t c = 0; c < classes; ++c) to[c] = (1 - e) * row[c] + uniform;
        } else {
          const T* const p = given->data<T>();
          for (int64_t c = 0; c < classes; ++c) to[c] = (1 - e) * row[c] + e * p[c];
        }
      }
      return Ok();
    });
  });
}

StatusOr<Kernel> label_smooth_grad(const KernelSetup& op) {
  const float epsilon = op.attr<float>("epsilon");
  return map_kernel<1>(op, {"Out@GRAD"}, "X@GRAD", [epsilon](auto dout) {
    return (1 - static_cast<decltype(dout)>(epsilon)) * dout;
  });
}

}  // namespace

void add_loss_distribution(KernelRegistry& registry) {
  registry.add("kldiv_loss", kldiv_loss);
  registry.add("kldiv_loss_grad", kldiv_loss_grad);
  registry.add("label_smooth", label_smooth);
  registry.add("label_smooth_grad", label_smooth_grad);
}

}  // namespace millrace::kernels
