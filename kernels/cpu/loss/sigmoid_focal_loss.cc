#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/cpu/index.h"
#include "kernels/cpu/needed.h"
#include "kernels/cpu/nest.h"
#include "kernels/dispatch.h"
#include "kernels/registry.h"

namespace millrace::kernels {
namespace {

struct FocalSettings {
  float gamma;
  float alpha;
};

struct FocalSlots {
  ArgIndex x, label, count;
};

struct FocalOperands {
  const Tensor* x;
  std::vector<int64_t> labels;
  int64_t count;  // number of objects; at least 1
};

StatusOr<FocalOperands> read_focal_operands(const KernelContext& ctx, const FocalSlots& slots) {
  FocalOperands o{};
  MILLRACE_ASSIGN_OR_RETURN(o.x, needed(ctx, slots.x, "X"));
  MILLRACE_ASSIGN_OR_RETURN(const Tensor* const label, needed(ctx, slots.label, "Label"));
  MILLRACE_ASSIGN_OR_RETURN(const Tensor* const count, needed(ctx, slots.count, "FgNum"));
  if (o.x->rank() != 2 || label->numel() != o.x->dim(0) || count->numel() != 1) {
    return ctx.error("X {}, Label {} and FgNum {} do not match", describe(*o.x), describe(*label),
                     describe(*count));
  }
  MILLRACE_RETURN_IF_ERROR(with_index(*label, "Label", [&](const auto* data) {
    o.labels.assign(data, data + label->numel());
    return Ok();
  }));
  MILLRACE_RETURN_IF_ERROR(with_index(*count, "FgNum", [&](const auto* data) {
    o.count = std::max<int64_t>(data[0], 1);
    return Ok();
  }));
  return o;
}

// p, log(p) and log(1 - p) for a logit relative to its class. log(1 - p) is x - log(1 + e^x),
// without loss of precision for either sign.
template <typename T>
struct FocalPoint {
  explicit FocalPoint(T x)
      : p(1 / (1 + std::exp(-x))),
        log_p(std::log(std::max(p, static_cast<T>(std::numeric_limits<float>::min())))),
        log_rest((x >= 0 ? -x : T{0}) - std::log1p(std::exp(x >= 0 ? -x : x))) {}
  T p;
  T log_p;
  T log_rest;
};

template <typename T>
T focal_right(const FocalPoint<T>& at, T gamma) {
  return -std::pow(1 - at.p, gamma) * at.log_p;
}
template <typename T>
T focal_right_slope(const FocalPoint<T>& at, T gamma) {
  return -std::pow(1 - at.p, gamma) * (1 - at.p - gamma * at.p * at.log_p);
}
template <typename T>
T focal_wrong(const FocalPoint<T>& at, T gamma) {
  return -std::pow(at.p, gamma) * at.log_rest;
}
template <typename T>
T focal_wrong_slope(const FocalPoint<T>& at, T gamma) {
  return -std::pow(at.p, gamma) * (gamma * (1 - at.p) * at.log_rest - at.p);
}

template <typename T, bool kGrad>
void focal_loop(CpuDevice& device, const FocalOperands& o, const FocalSettings& s, const T* dout,
                T* out) {
  const int64_t classes = o.x->dim(1);
  const T gamma = static_cast<T>(s.gamma);
  const T right = static_cast<T>(s.alpha) / static_cast<T>(o.count);
  const T wrong = (1 - static_cast<T>(s.alpha)) / static_cast<T>(o.count);
  const int64_t grain = std::max<int64_t>(kGrain / 32 / std::max<int64_t>(classes, 1), 1);
  device.parallel_for(o.x->dim(0), grain, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const int64_t label = o.labels[static_cast<size_t>(row)];
      for (int64_t k = 0; k < classes; ++k) {
        const int64_t i = row * classes + k;
        if (label == -1) {
          out[i] = 0;
          continue;
        }
        const FocalPoint<T> at(o.x->data<T>()[i]);
        if constexpr (kGrad) {
          out[i] = dout[i] * (label == k + 1 ? right * focal_right_slope(at, gamma)
                                             : wrong * focal_wrong_slope(at, gamma));
        } else {
          out[i] = label == k + 1 ? right * focal_right(at, gamma) : wrong * focal_wrong(at, gamma);
        }
      }
    }
  });
}

FocalSlots focal_slots(const KernelSetup& op) {
  return {op.input("X"), op.input("Label"), op.input("FgNum")};
}

FocalSettings focal_settings(const KernelSetup& op) {
  return {op.attr<float>("gamma"), op.attr<float>("alpha")};
}

StatusOr<Kernel> sigmoid_focal_loss(const KernelSetup& op) {
  const ArgIndex out = op.output("Out");
  return Kernel(
      [=, slots = focal_slots(op), s = focal_settings(op)](const KernelContext& ctx) -> Status {
        MILLRACE_ASSIGN_OR_RETURN(const FocalOperands o, read_focal_operands(ctx, slots));
        MILLRACE_ASSIGN_OR_RETURN(Tensor* const to, result_like(ctx, out, *o.x));
        if (to == nullptr) return Ok();
        return dispatch<FloatTypes>(o.x->dtype(), [&](auto tag) {
          using T = typename decltype(tag)::type;
          focal_loop<T, false>(ctx.device(), o, s, nullptr, to->data<T>());
          return Ok();
        });
      });
}

StatusOr<Kernel> sigmoid_focal_loss_grad(const KernelSetup& op) {
  const ArgIndex dout = op.input("Out@GRAD");
  const ArgIndex dx = op.output("X@GRAD");
  return Kernel(
      [=, slots = focal_slots(op), s = focal_settings(op)](const KernelContext& ctx) -> Status {
        MILLRACE_ASSIGN_OR_RETURN(const FocalOperands o, read_focal_operands(ctx, slots));
        MILLRACE_ASSIGN_OR_RETURN(Tensor* const to, result_like(ctx, dx, *o.x));
        if (to == nullptr) return Ok();
        MILLRACE_ASSIGN_OR_RETURN(const Tensor* const grad, needed(ctx, dout, "Out@GRAD"));
        if (grad->dims() != o.x->dims() || grad->dtype() != o.x->dtype())
          return ctx.error("Out@GRAD must match X {}, found {}", describe(*o.x), describe(*grad));
        return dispatch<FloatTypes>(o.x->dtype(), [&](auto tag) {
          using T = typename decltype(tag)::type;
          focal_loop<T, true>(ctx.device(), o, s, grad->data<T>(), to->data<T>());
          return Ok();
        });
      });
}

}  // namespace

void add_loss_sigmoid_focal_loss(KernelRegistry& registry) {
  registry.add("sigmoid_focal_loss", sigmoid_focal_loss);
  registry.add("sigmoid_focal_loss_grad", sigmoid_focal_loss_grad);
}

}  // namespace millrace::kernels
