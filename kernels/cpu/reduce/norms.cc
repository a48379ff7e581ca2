#include <cmath>

#include "kernels/cpu/extent.h"
#include "kernels/cpu/gradient.h"
#include "kernels/cpu/needed.h"
#include "kernels/cpu/reduce/reducer.h"
#include "kernels/dispatch.h"
#include "kernels/registry.h"

namespace millrace::kernels {
namespace {

// norm: out = x / norm, norm = sqrt(sum of squares + epsilon).

template <typename T>
void normalize(const Extent& extent, double epsilon, const T* x, T* norm, T* out) {
  const int64_t inner = extent.inner;
  for (int64_t o = 0; o < extent.outer; ++o) {
    const T* const from = x + o * extent.count * inner;
    T* const to = out + o * extent.count * inner;
    T* const root = norm + o * inner;
    std::fill_n(root, inner, static_cast<T>(epsilon));
    for (int64_t k = 0; k < extent.count; ++k) {
      for (int64_t i = 0; i < inner; ++i) root[i] += from[k * inner + i] * from[k * inner + i];
    }
    for (int64_t i = 0; i < inner; ++i) root[i] = std::sqrt(root[i]);
    for (int64_t k = 0; k < extent.count; ++k) {
      for (int64_t i = 0; i < inner; ++i) to[k * inner + i] = from[k * inner + i] / root[i];
    }
  }
}

// dx = (dout - x * sum(dout * x) / norm^2) / norm.
template <typename T>
void normalize_grad(const Extent& extent, const T* x, const T* norm, const T* dout, T* dots,
                    T* dx) {
  const int64_t inner = extent.inner;
  for (int64_t o = 0; o < extent.outer; ++o) {
    const int64_t at = o * extent.count * inner;
    const T* const root = norm + o * inner;
    std::fill_n(dots, inner, T(0));
    for (int64_t k = 0; k < extent.count; ++k) {
      const int64_t row = at + k * inner;
      for (int64_t i = 0; i < inner; ++i) dots[i] += x[row + i] * dout[row + i];
    }
    for (int64_t i = 0; i < inner; ++i) dots[i] /= root[i] * root[i];
    for (int64_t k = 0; k < extent.count; ++k) {
      const int64_t row = at + k * inner;
      for (int64_t i = 0; i < inner; ++i)
        dx[row + i] = (dout[row + i] - x[row + i] * dots[i]) / root[i];
    }
  }
}

StatusOr<Kernel> norm(const KernelSetup& op) {
  return Kernel([x_arg = op.input("X"), out_arg = op.output("Out"), norm_arg = op.output("Norm"),
                 axis = op.attr<int32_t>("axis"),
                 epsilon = op.attr<float>("epsilon")](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const x, needed(ctx, x_arg, "X"));
    MILLRACE_ASSIGN_OR_RETURN(const Extent extent, extent_of(x->dims(), axis, "axis"));
    return dispatch<FloatTypes>(x->dtype(), [&](auto tag) -> Status {
      using T = typename decltype(tag)::type;
      T* norms = nullptr;
      if (Tensor* const kept = ctx.find_out(norm_arg)) {
        norms = kept->data<T>();
      } else {
        const auto bytes = static_cast<size_t>(extent.outer * extent.inner) * sizeof(T);
        MILLRACE_ASSIGN_OR_RETURN(std::byte* const memory, ctx.device().scratch(bytes));
        norms = reinterpret_cast<T*>(memory);
      }
      normalize(extent, epsilon, x->data<T>(), norms, ctx.out(out_arg).data<T>());
      return Ok();
    });
  });
}

StatusOr<Kernel> norm_grad(const KernelSetup& op) {
  const ArgIndex dx_arg = op.output("X@GRAD");
  if (!dx_arg) return Kernel([](const KernelContext&) { return Ok(); });
  return Kernel([x_arg = op.input("X"), norm_arg = op.input("Norm"),
                 dout_arg = op.input("Out@GRAD"), dx_arg,
                 axis = op.attr<int32_t>("axis")](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const x, needed(ctx, x_arg, "X"));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const norms, needed(ctx, norm_arg, "Norm"));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const dout, needed(ctx, dout_arg, "Out@GRAD"));
    MILLRACE_ASSIGN_OR_RETURN(const Extent extent, extent_of(x->dims(), axis, "axis"));
    if (norms->numel() != extent.outer * extent.inner || norms->dtype() != x->dtype() ||
        dout->numel() != x->numel() || dout->dtype() != x->dtype())
      return ctx.error("Norm {} or Out@GRAD {} does not fit X {}", describe(*norms),
                       describe(*dout), describe(*x));
    return dispatch<FloatTypes>(x->dtype(), [&](auto tag) -> Status {
      using T = typename decltype(tag)::type;
      const auto bytes = static_cast<size_t>(extent.inner) * sizeof(T);
      MILLRACE_ASSIGN_OR_RETURN(std::byte* const dots, ctx.device().scratch(bytes));
      normalize_grad(extent, x->data<T>(), norms->data<T>(), dout->data<T>(),
                     reinterpret_cast<T*>(dots), ctx.out(dx_arg).data<T>());
      return Ok();
    });
  });
}

// p_norm.

struct PNorm {
  int64_t axis;
  bool as_vector;
  double p;
  double epsilon;
  explicit PNorm(const KernelSetup& op)
      : axis(op.attr<int32_t>("axis")),
        as_vector(op.attr<bool>("asvector")),
        p(op.attr<float>("porder")),
        epsilon(op.attr<float>("epsilon")) {}

  [[nodiscard]] StatusOr<Extent> extent(const Tensor& x) const {
    if (as_vector) return Extent{1, x.numel(), 1};
    return extent_of(x.dims(), axis, "axis");
  }
};

// Norm of count elements that are step elements apart.
template <typename T>
double p_norm_of(const T* x, int64_t count, int64_t step, double p) {
  double total = p < 0 && std::isinf(p) ? std::numeric_limits<double>::infinity() : 0;
  for (int64_t k = 0; k < count; ++k) {
    const double magnitude = std::abs(static_cast<double>(x[k * step]));
    if (p == 0) {
      total += magnitude != 0 ? 1 : 0;
    } else if (std::isinf(p)) {
      total = p > 0 ? std::max(total, magnitude) : std::min(total, magnitude);
    } else {
      total += p == 1 ? magnitude : p == 2 ? magnitude * magnitude : std::pow(magnitude, p);
    }
  }
  if (p == 0 || p == 1 || std::isinf(p)) return total;
  return p == 2 ? std::sqrt(total) : std::pow(total, 1 / p);
}

double p_norm_slope(double x, double norm, const PNorm& of) {
  const double sign = x > 0 ? 1 : x < 0 ? -1 : 0;
  const double magnitude = std::abs(x);
  if (of.p == 0 || sign == 0) return 0;
  if (std::isinf(of.p)) return magnitude == norm ? sign : 0;
  return sign * std::pow(magnitude, of.p - 1) / (std::pow(norm, of.p - 1) + of.epsilon);
}

StatusOr<Kernel> p_norm(const KernelSetup& op) {
  return Kernel([of = PNorm(op), x_arg = op.input("X"),
                 out_arg = op.output("Out")](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const x, needed(ctx, x_arg, "X"));
    MILLRACE_ASSIGN_OR_RETURN(const Extent extent, of.extent(*x));
    return dispatch<FloatTypes>(x->dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      T* const out = ctx.out(out_arg).data<T>();
      for (int64_t o = 0; o < extent.outer; ++o) {
        for (int64_t i = 0; i < extent.inner; ++i) {
          const T* const line = x->data<T>() + o * extent.count * extent.inner + i;
          out[o * extent.inner + i] =
              static_cast<T>(p_norm_of(line, extent.count, extent.inner, of.p));
        }
      }
      return Ok();
    });
  });
}

StatusOr<Kernel> p_norm_grad(const KernelSetup& op) {
  return required_gradient(
      op,
      [of = PNorm(op), out_arg = op.input("Out")](const KernelContext& ctx,
                                                  const GradientTensors& g) -> Status {
        const auto [x, dout, to] = g;
        MILLRACE_ASSIGN_OR_RETURN(const Tensor* const out, needed(ctx, out_arg, "Out"));
        MILLRACE_ASSIGN_OR_RETURN(const Extent extent, of.extent(*x));
        for (const Tensor* const result : {out, dout}) {
          if (result->numel() != extent.outer * extent.inner || result->dtype() != x->dtype())
            return ctx.error("Out and Out@GRAD must have {} elements of the type of X {}, found {}",
                             extent.outer * extent.inner, describe(*x), describe(*result));
        }
        return dispatch<FloatTypes>(x->dtype(), [&](auto tag) {
          using T = typename decltype(tag)::type;
          T* const dx = to->data<T>();
          for (int64_t at = 0; at < x->numel(); ++at) {
            const int64_t result =
                at / (extent.count * extent.inner) * extent.inner + at % extent.inner;
            const double slope = p_norm_slope(static_cast<double>(x->data<T>()[at]),
                                              static_cast<double>(out->data<T>()[result]), of);
            dx[at] = static_cast<T>(slope * static_cast<double>(dout->data<T>()[result]));
          }
          return Ok();
        });
      });
}

}  // namespace

/// norm and p_norm with their gradients.
void add_reduce_norms(KernelRegistry& registry) {
  registry.add("norm", norm);
  registry.add("norm_grad", norm_grad);
  registry.add("p_norm", p_norm);
  registry.add("p_norm_grad", p_norm_grad);
}

}  // namespace millrace::kernels
