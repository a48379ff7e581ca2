#include <cmath>

#include "kernels/cpu/convert.h"
#include "kernels/cpu/needed.h"
#include "kernels/cpu/reduce/reducer.h"
#include "kernels/cpu/wide_elements.h"
#include "kernels/dispatch.h"
#include "kernels/registry.h"

namespace millrace::kernels {
namespace totals {
namespace {

template <typename Rule, bool kMean>
StatusOr<Kernel> total(const KernelSetup& op) {
  return Kernel(
      [x_arg = op.input("X"), out_arg = op.output("Out")](const KernelContext& ctx) -> Status {
        MILLRACE_ASSIGN_OR_RETURN(const Tensor* const x, needed(ctx, x_arg, "X"));
        const int64_t count = x->numel();
        return with_wide_elements(
            ctx.device(), *x, ctx.out(out_arg), [&]<typename T>(const T* from, T* sum) -> Status {
              MILLRACE_ASSIGN_OR_RETURN(*sum, (reduce_all<Rule, T>(ctx.device(), from, count)));
              if (kMean) *sum /= static_cast<T>(count);
              return Ok();
            });
      });
}

struct Mean {
  template <typename T>
  static T slope(T /*x*/, T dout, T count) {
    return dout / count;
  }
};
struct Magnitude {
  template <typename T>
  static T slope(T x, T dout, T /*count*/) {
    return x > T(0) ? dout : x < T(0) ? -dout : T(0);
  }
};
struct SquareTotal {
  template <typename T>
  static T slope(T x, T dout, T /*count*/) {
    return T(2) * dout * x;
  }
};

template <typename F>
StatusOr<Kernel> total_grad(const KernelSetup& op) {
  const ArgIndex dx_arg = op.output("X@GRAD");
  if (!dx_arg) return Kernel([](const KernelContext&) { return Ok(); });
  return Kernel([x_arg = op.input("X"), dout_arg = op.input("Out@GRAD"),
                 dx_arg](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const x, needed(ctx, x_arg, "X"));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const dout, needed(ctx, dout_arg, "Out@GRAD"));
    if (dout->numel() != 1 || dout->dtype() != x->dtype())
      return ctx.error("Out@GRAD must have one element of the type of X {}, found {}", describe(*x),
                       describe(*dout));
    const DType dtype = wide_type(x->dtype());
    CpuDevice& device = ctx.device();
    MILLRACE_ASSIGN_OR_RETURN(const std::byte* const from, elements_as(device, *x, dtype, 0));
    MILLRACE_ASSIGN_OR_RETURN(const std::byte* const grad, elements_as(device, *dout, dtype, 1));
    MILLRACE_ASSIGN_OR_RETURN(const WideOutput to,
                              WideOutput::open(device, ctx.out(dx_arg), dtype, 2));
    MILLRACE_RETURN_IF_ERROR(dispatch<FloatTypes>(dtype, [&](auto tag) {
      using T = typename decltype(tag)::type;
      const T factor = *reinterpret_cast<const T*>(grad);
      const T* const values = reinterpret_cast<const T*>(from);
      T* const out = to.data<T>();
      const T count = static_cast<T>(x->numel());
      device.parallel_for(x->numel(), kGrain, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i)
          out[i] = F::template slope<T>(values[i], factor, count);
      });
      return Ok();
    }));
    return to.finish();
  });
}

enum class TotalsTest { kFinite, kInfinite, kNan };

// isfinite: true if all elements are finite; the others: true if any element matches.
template <TotalsTest kTest, typename T>
bool holds(const T* values, int64_t count) {
  if constexpr (std::is_integral_v<T>) return kTest == TotalsTest::kFinite;
  // No early exit, so that the loop vectorizes.
  bool found = false;
  for (int64_t i = 0; i < count; ++i) {
    const auto value = static_cast<Compute<T>>(values[i]);
    switch (kTest) {
      case TotalsTest::kFinite:
        found |= !std::isfinite(value);
        break;
      case TotalsTest::kInfinite:
        found |= std::isinf(value);
        break;
      case TotalsTest::kNan:
        found |= std::isnan(value);
        break;
    }
  }
  return kTest == TotalsTest::kFinite ? !found : found;
}

template <TotalsTest kTest>
StatusOr<Kernel> test(const KernelSetup& op) {
  return Kernel([x_arg = op.input("X"), out_arg = op.output("Out")](const KernelContext& ctx) {
    const Value& value = ctx.in_value(x_arg);
    const auto* const rows = value.get_if<SelectedRows>();
    const Tensor* const x = rows == nullptr ? value.get_if<Tensor>() : &rows->value;
    if (x == nullptr) return ctx.error("X must be a dense tensor or selected rows");
    bool* const out = ctx.out(out_arg).data<bool>();
    return dispatch<AllTypes>(x->dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      *out = holds<kTest>(x->data<T>(), x->numel());
      return Ok();
    });
  });
}

}  // namespace
}  // namespace totals

/// mean, l1_norm, squared_l2_norm with their gradients, isfinite, isinf, isnan.
void add_reduce_totals(KernelRegistry& registry) {
  using namespace totals;
  registry.add("mean", total<Sum, true>);
  registry.add("mean_grad", total_grad<Mean>);
  registry.add("l1_norm", total<SumOfMagnitudes, false>);
  registry.add("l1_norm_grad", total_grad<Magnitude>);
  registry.add("squared_l2_norm", total<SumOfSquares, false>);
  registry.add("squared_l2_norm_grad", total_grad<SquareTotal>);
  registry.add("isfinite", test<TotalsTest::kFinite>);
  registry.add("isinf", test<TotalsTest::kInfinite>);
  registry.add("isnan", test<TotalsTest::kNan>);
}

}  // namespace millrace::kernels
