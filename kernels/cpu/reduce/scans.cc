#include <algorithm>

#include "kernels/cpu/extent.h"
#include "kernels/cpu/gradient.h"
#include "kernels/cpu/needed.h"
#include "kernels/dispatch.h"
#include "kernels/registry.h"

namespace millrace::kernels {
namespace {

// cumsum.

struct SumOptions {
  int64_t axis;
  bool flatten;
  bool exclusive;
  bool reverse;
  explicit SumOptions(const KernelSetup& op)
      : axis(op.attr<int32_t>("axis")),
        flatten(op.attr<bool>("flatten")),
        exclusive(op.attr<bool>("exclusive")),
        reverse(op.attr<bool>("reverse")) {}

  [[nodiscard]] StatusOr<Extent> extent(const Tensor& x) const {
    if (flatten) return Extent{1, x.numel(), 1};
    return extent_of(x.dims(), axis, "axis");
  }
};

// Sequential along the axis, vectorized over the inner dims. out may be x.
template <typename T>
void running_sum(const Extent& extent, bool exclusive, bool reverse, const T* x, T* out) {
  const int64_t inner = extent.inner;
  llvm::SmallVector<T, 64> sums(static_cast<size_t>(inner));
  for (int64_t o = 0; o < extent.outer; ++o) {
    std::fill(sums.begin(), sums.end(), T(0));
    for (int64_t k = 0; k < extent.count; ++k) {
      const int64_t row = reverse ? extent.count - 1 - k : k;
      const int64_t at = (o * extent.count + row) * inner;
      T* const sum = sums.data();
      for (int64_t i = 0; i < inner; ++i) {
        const T next = sum[i] + x[at + i];
        out[at + i] = exclusive ? sum[i] : next;
        sum[i] = next;
      }
    }
  }
}

StatusOr<Kernel> cumsum(const KernelSetup& op) {
  return Kernel([options = SumOptions(op), x_arg = op.input("X"),
                 out_arg = op.output("Out")](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const x, needed(ctx, x_arg, "X"));
    MILLRACE_ASSIGN_OR_RETURN(const Extent extent, options.extent(*x));
    return dispatch<NumberTypes>(x->dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      running_sum(extent, options.exclusive, options.reverse, x->data<T>(),
                  ctx.out(out_arg).data<T>());
      return Ok();
    });
  });
}

// The running sum of the gradient from the other end.
StatusOr<Kernel> cumsum_grad(const KernelSetup& op) {
  const ArgIndex dx_arg = op.output("X@GRAD");
  if (!dx_arg) return Kernel([](const KernelContext&) { return Ok(); });
  return Kernel([options = SumOptions(op), dout_arg = op.input("Out@GRAD"),
                 dx_arg](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const dout, needed(ctx, dout_arg, "Out@GRAD"));
    Tensor& dx = ctx.out(dx_arg);
    if (dx.numel() != dout->numel() || dx.dtype() != dout->dtype())
      return ctx.error("Out@GRAD is {}, but X@GRAD is {}", describe(*dout), describe(dx));
    MILLRACE_ASSIGN_OR_RETURN(const Extent extent, options.extent(dx));
    return dispatch<NumberTypes>(dx.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      running_sum(extent, options.exclusive, !options.reverse, dout->data<T>(), dx.data<T>());
      return Ok();
    });
  });
}

// cumprod.

StatusOr<Kernel> cumprod(const KernelSetup& op) {
  return Kernel([dim = op.attr<int32_t>("dim"), x_arg = op.input("X"),
                 out_arg = op.output("Out")](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const x, needed(ctx, x_arg, "X"));
    MILLRACE_ASSIGN_OR_RETURN(const Extent extent, extent_of(x->dims(), dim, "dim"));
    return dispatch<NumberTypes>(x->dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      const T* const from = x->data<T>();
      T* const out = ctx.out(out_arg).data<T>();
      for (int64_t o = 0; o < extent.outer; ++o) {
        for (int64_t k = 0; k < extent.count; ++k) {
          const int64_t at = (o * extent.count + k) * extent.inner;
          for (int64_t i = 0; i < extent.inner; ++i)
            out[at + i] = k == 0 ? from[at + i] : out[at + i - extent.inner] * from[at + i];
        }
      }
      return Ok();
    });
  });
}

// Gradient along one line of elements that are step elements apart: dx[i] = sum over j >= i of
// dout[j] times the product of x[0..j] without x[i].
template <typename T>
void cumprod_line(const T* x, const T* out, const T* dout, T* dx, int64_t count, int64_t step) {
  int64_t zero = 0;
  while (zero < count && x[zero * step] != T(0)) ++zero;
  // Before the first zero, the factor is divided out again. Products after it are 0 and contribute
  // nothing.
  T sum = 0;
  for (int64_t i = zero; i-- > 0;) {
    sum += dout[i * step] * out[i * step];
    dx[i * step] = sum / x[i * step];
  }
  if (zero == count) return;
  // At the first zero, all products without another zero contribute. After it, the gradient is 0.
  T product = zero == 0 ? T(1) : out[(zero - 1) * step];
  sum = dout[zero * step] * product;
  for (int64_t j = zero + 1; j < count; ++j) {
    product *= x[j * step];
    sum += dout[j * step] * product;
  }
  dx[zero * step] = sum;
  for (int64_t i = zero + 1; i < count; ++i) dx[i * step] = T(0);
}

StatusOr<Kernel> cumprod_grad(const KernelSetup& op) {
  return required_gradient(
      op,
      [dim = op.attr<int32_t>("dim"), out_arg = op.input("Out")](
          const KernelContext& ctx, const GradientTensors& g) -> Status {
        const auto [x, dout, to] = g;
        MILLRACE_ASSIGN_OR_RETURN(const Tensor* const out, needed(ctx, out_arg, "Out"));
        for (const Tensor* const other : {out, dout}) {
          if (other->dims() != x->dims() || other->dtype() != x->dtype())
            return ctx.error("Out and Out@GRAD must match X {}, found {}", describe(*x),
                             describe(*other));
        }
        MILLRACE_ASSIGN_OR_RETURN(const Extent extent, extent_of(x->dims(), dim, "dim"));
        return dispatch<FloatTypes>(x->dtype(), [&](auto tag) {
          using T = typename decltype(tag)::type;
          T* const dx = to->data<T>();
          for (int64_t o = 0; o < extent.outer; ++o) {
            for (int64_t i = 0; i < extent.inner; ++i) {
              const int64_t at = o * extent.count * extent.inner + i;
              cumprod_line(x->data<T>() + at, out->data<T>() + at, dout->data<T>() + at, dx + at,
                           extent.count, extent.inner);
            }
          }
          return Ok();
        });
      });
}

}  // namespace

/// cumsum and cumprod with their gradients.
void add_reduce_scans(KernelRegistry& registry) {
  registry.add("cumsum", cumsum);
  registry.add("cumsum_grad", cumsum_grad);
  registry.add("cumprod", cumprod);
  registry.add("cumprod_grad", cumprod_grad);
}

}  // namespace millrace::kernels
