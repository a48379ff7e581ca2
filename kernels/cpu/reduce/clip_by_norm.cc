#include <cmath>

#include "kernels/cpu/merge_rows.h"
#include "kernels/cpu/reduce/reducer.h"
#include "kernels/dispatch.h"
#include "kernels/kernel.h"
#include "kernels/registry.h"

namespace millrace::kernels {
namespace {

// out = x, scaled down to the maximum norm if it exceeds it.
Status clip_tensor(CpuDevice& device, const Tensor& x, Tensor& out, float largest) {
  return dispatch<AllFloatTypes>(x.dtype(), [&](auto tag) -> Status {
    using T = typename decltype(tag)::type;
    using C = Compute<T>;
    const T* const from = x.data<T>();
    T* const to = out.data<T>();
    C square = 0;
    if constexpr (std::is_same_v<T, C>) {
      MILLRACE_ASSIGN_OR_RETURN(square, (reduce_all<SumOfSquares, T>(device, from, x.numel())));
    } else {
      for (int64_t i = 0; i < x.numel(); ++i)
        square += static_cast<C>(from[i]) * static_cast<C>(from[i]);
    }
    const C norm = std::sqrt(square);
    const C factor = norm > static_cast<C>(largest) ? static_cast<C>(largest) / norm : C(1);
    device.parallel_for(x.numel(), kGrain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        to[i] = static_cast<T>(factor * static_cast<C>(from[i]));
    });
    return Ok();
  });
}

StatusOr<Kernel> clip_by_norm(const KernelSetup& op) {
  const ArgIndex x_arg = op.input("X");
  const ArgIndex out_arg = op.output("Out");
  const auto largest = op.attr<float>("max_norm");
  return Kernel([=](const KernelContext& ctx) -> Status {
    if (const Tensor* const x = ctx.find_in(x_arg)) {
      // inference does not size an output that is declared as selected rows
      Tensor& out = ctx.out(out_arg);
      if (!out.initialized() || out.dtype() != x->dtype() || out.dims() != x->dims())
        MILLRACE_RETURN_IF_ERROR(out.resize(x->dtype(), x->dims()));
      return clip_tensor(ctx.device(), *x, out, largest);
    }
    const auto* const rows = ctx.in_value(x_arg).get_if<SelectedRows>();
    if (rows == nullptr) return ctx.error("X must be a dense tensor or selected rows");
    // The norm is that of the summed rows, so duplicate rows are added up first.
    MILLRACE_ASSIGN_OR_RETURN(SelectedRows merged, merged_rows(*rows));
    MILLRACE_RETURN_IF_ERROR(clip_tensor(ctx.device(), merged.value, merged.value, largest));
    ctx.out_value(out_arg).as<SelectedRows>() = std::move(merged);
    return Ok();
  });
}

}  // namespace

void add_reduce_clip_by_norm(KernelRegistry& registry) {
  registry.add("clip_by_norm", clip_by_norm);
}

}  // namespace millrace::kernels
