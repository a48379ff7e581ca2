#include <cmath>

#include "kernels/cpu/convert.h"
#include "kernels/cpu/reduce/spread.h"
#include "kernels/cpu/vector_math.h"
#include "kernels/cpu/wide_elements.h"
#include "kernels/registry.h"

namespace millrace::kernels {
namespace logsumexp_kernels {
namespace {

// sums[...] += exp(in - top[...]) along the nest.
template <typename T>
void add_powers(CpuDevice& device, const ReduceNest& nest, const T* in, const T* top, T* sums) {
  const bool sideways = nest.run_stride()[kReduced] == 0;
  nest.parallel_runs(device, kReduced, [&](const ReduceNest::Offsets& at, int64_t count) {
    const T* const from = in + at[kIn];
    const T* const shift = top + at[kReduced];
    T* const to = sums + at[kReduced];
    if (sideways) {
      const T once = *shift;
      *to += combine_mapped(
          from, count, T(0), [once](T x) { return vmath::exp(x - once); },
          [](T a, T b) { return a + b; });
    } else {
      for (int64_t i = 0; i < count; ++i) to[i] += vmath::exp(from[i] - shift[i]);
    }
  });
}

template <typename T>
Status run(CpuDevice& device, const ReduceAxes::Plan& plan, const T* x, T* out) {
  const auto bytes = static_cast<size_t>(plan.out_count) * sizeof(T);
  MILLRACE_ASSIGN_OR_RETURN(std::byte* const memory, device.scratch(2 * bytes, 2));
  T* const top = reinterpret_cast<T*>(memory);
  T* const sums = top + plan.out_count;
  MILLRACE_RETURN_IF_ERROR((reduce<Max, T>(device, plan.nest, x, top, plan.out_count)));
  for (int64_t i = 0; i < plan.out_count; ++i) {
    // If the maximum is infinite it is the result; subtracting it would produce NaN.
    if (std::isinf(top[i])) top[i] = 0;
    sums[i] = 0;
  }
  add_powers(device, plan.nest, x, top, sums);
  for (int64_t i = 0; i < plan.out_count; ++i) out[i] = top[i] + std::log(sums[i]);
  return Ok();
}

StatusOr<Kernel> logsumexp(const KernelSetup& op) {
  return Kernel(
      [x_arg = op.input("X"), out_arg = op.output("Out"),
       axes = ReduceAxes(op, "axis", "keepdim")](const KernelContext& ctx) mutable -> Status {
        const Tensor& x = ctx.in(x_arg);
        MILLRACE_ASSIGN_OR_RETURN(const ReduceAxes::Plan* const plan, axes.plan(ctx, x.dims()));
        Tensor& out = ctx.out(out_arg);
        MILLRACE_RETURN_IF_ERROR(ReduceAxes::check_result(ctx, *plan, out));
        return with_wide_elements(ctx.device(), x, out, [&](const auto* from, auto* to) {
          return run(ctx.device(), *plan, from, to);
        });
      });
}

struct LogSumExpGrad {
  template <typename T>
  static T slope(T x, T out, T dout, T /*each*/) {
    return dout * vmath::exp(x - out);
  }
};

StatusOr<Kernel> logsumexp_grad(const KernelSetup& op) {
  const ArgIndex dx_arg = op.output("X@GRAD");
  if (!dx_arg) return Kernel([](const KernelContext&) { return Ok(); });
  return Kernel(
      [x_arg = op.input("X"), out_arg = op.input("Out"), dout_arg = op.input("Out@GRAD"), dx_arg,
       axes = ReduceAxes(op, "axis", "keepdim")](const KernelContext& ctx) mutable -> Status {
        const Tensor& x = ctx.in(x_arg);
        MILLRACE_ASSIGN_OR_RETURN(const ReduceAxes::Plan* const plan, axes.plan(ctx, x.dims()));
        return spread<LogSumExpGrad>(ctx, *plan, x, &ctx.in(out_arg), ctx.in(dout_arg),
                                     ctx.out(dx_arg));
      });
}

}  // namespace
}  // namespace logsumexp_kernels

/// logsumexp with its gradient.
void add_reduce_logsumexp(KernelRegistry& registry) {
  using namespace logsumexp_kernels;
  registry.add("logsumexp", logsumexp);
  registry.add("logsumexp_grad", logsumexp_grad);
}

}  // namespace millrace::kernels
