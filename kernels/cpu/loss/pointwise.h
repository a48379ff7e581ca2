#pragma once

#include <array>
#include <utility>

#include "kernels/cpu/needed.h"
#include "kernels/cpu/nest.h"
#include "kernels/dispatch.h"
#include "kernels/kernel.h"

/// Kernels of losses that apply one formula to each element, and of their gradients.
namespace millrace::kernels {

namespace detail {

/// The loop itself, apart from the kernel so that it vectorizes: formula is a local copy, and in
/// and out are plain pointers.
template <typename T, typename Formula, typename... In>
void map_loop(const Formula& formula, int64_t count, T* out, const In*... in) {
  const Formula f = formula;
  for (int64_t i = 0; i < count; ++i) out[i] = f(in[i]...);
}

/// Divides the elements among the threads of the device.
template <typename T, typename Formula, size_t N, size_t... I>
void map_tensors(CpuDevice& device, const Formula& formula,
                 const std::array<const Tensor*, N>& inputs, Tensor& out,
                 std::index_sequence<I...> /*inputs*/) {
  device.parallel_for(out.numel(), kGrain, [&](int64_t begin, int64_t end) {
    map_loop(formula, end - begin, out.data<T>() + begin,
             (inputs[I]->template data<T>() + begin)...);
  });
}

}  // namespace detail

/// out[i] = formula(in0[i], in1[i], ...) for f32 and f64. All tensors must have the type of the
/// first and the same number of elements; the output gets the dims and LoD of the first. Does
/// nothing if the op lacks the output. formula is a generic function object. Errors: inputs that
/// are missing or differ; the message names the slot.
template <size_t N, typename Formula>
Kernel map_kernel(const KernelSetup& op, const std::array<const char*, N>& slots,
                  const char* output, Formula formula) {
  std::array<ArgIndex, N> args;
  for (size_t i = 0; i < N; ++i) args[i] = op.input(slots[i]);
  const ArgIndex out = op.output(output);
  return [=](const KernelContext& ctx) -> Status {
    if (!out) return Ok();
    std::array<const Tensor*, N> inputs;
    for (size_t i = 0; i < N; ++i) {
      MILLRACE_ASSIGN_OR_RETURN(inputs[i], needed(ctx, args[i], slots[i]));
      if (inputs[i]->numel() != inputs[0]->numel() || inputs[i]->dtype() != inputs[0]->dtype()) {
        return ctx.error("{} must match {} {}, found {}", slots[i], slots[0], describe(*inputs[0]),
                         describe(*inputs[i]));
      }
    }
    MILLRACE_ASSIGN_OR_RETURN(Tensor* const to, result_like(ctx, out, *inputs[0]));
    return dispatch<FloatTypes>(inputs[0]->dtype(), [&](auto tag) -> Status {
      detail::map_tensors<typename decltype(tag)::type>(ctx.device(), formula, inputs, *to,
                                                        std::make_index_sequence<N>{});
      return Ok();
    });
  };
}

/// Runs kernels one after another.
/// For ops with two outputs that are computed by two formulas. Stops at the first error.
inline Kernel in_order(Kernel first, Kernel second) {
  return
      [first = std::move(first), second = std::move(second)](const KernelContext& ctx) -> Status {
        MILLRACE_RETURN_IF_ERROR(first(ctx));
        return second(ctx);
      };
}

}  // namespace millrace::kernels
