#pragma once

#include "kernels/cpu/convert.h"
#include "kernels/cpu/reduce/axes.h"
#include "kernels/dispatch.h"

namespace millrace::kernels {

/// Gradient of a reduction: dx = F::slope(x, out, dout, each) for every element. F has
/// `template <typename T> static T slope(T x, T out, T dout, T each)`; examples are in
/// reduction_grads.cc. out and dout belong to the element's result, and each is the number of
/// elements per result. Computes in a float type. out is null if the formula does not use it. Uses
/// all scratch slots. Errors: sizes that do not fit the plan; integers.
template <typename F>
Status spread(const KernelContext& ctx, const ReduceAxes::Plan& plan, const Tensor& x,
              const Tensor* out, const Tensor& dout, Tensor& dx) {
  for (const Tensor* const result : {out, &dout}) {
    if (result != nullptr && result->numel() != plan.out_count)
      return ctx.error("the result and its gradient must have {} elements, found {}",
                       plan.out_count, describe(*result));
  }
  if (dx.numel() != plan.nest.count())
    return ctx.error("X@GRAD must match X {}, found {}", describe(x), describe(dx));
  CpuDevice& device = ctx.device();
  const DType dtype = wide_type(dx.dtype());
  MILLRACE_ASSIGN_OR_RETURN(const std::byte* const raw_x, elements_as(device, x, dtype, 0));
  MILLRACE_ASSIGN_OR_RETURN(const std::byte* const raw_dout, elements_as(device, dout, dtype, 1));
  const std::byte* raw_out = raw_dout;
  if (out != nullptr) {
    MILLRACE_ASSIGN_OR_RETURN(raw_out, elements_as(device, *out, dtype, 2));
  }
  MILLRACE_ASSIGN_OR_RETURN(const WideOutput to, WideOutput::open(device, dx, dtype, 3));
  MILLRACE_RETURN_IF_ERROR(dispatch<FloatTypes>(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const auto each = static_cast<T>(plan.each());
    // all elements of a run belong to one result
    const bool sideways = plan.nest.run_stride()[kReduced] == 0;
    plan.nest.parallel_runs(device, kIn, [&](const ReduceNest::Offsets& at, int64_t count) {
      const T* const from = reinterpret_cast<const T*>(raw_x) + at[kIn];
      const T* const result = reinterpret_cast<const T*>(raw_out) + at[kReduced];
      const T* const grad = reinterpret_cast<const T*>(raw_dout) + at[kReduced];
      T* const target = to.data<T>() + at[kIn];
      if (sideways) {
        const T once = *result;
        const T grad_once = *grad;
        for (int64_t i = 0; i < count; ++i)
          target[i] = F::template slope<T>(from[i], once, grad_once, each);
      } else {
        for (int64_t i = 0; i < count; ++i)
          target[i] = F::template slope<T>(from[i], result[i], grad[i], each);
      }
    });
    return Ok();
  }));
  return to.finish();
}

}  // namespace millrace::kernels
