#include "kernels/cpu/int_list.h"
#include "kernels/cpu/tensor/axis_view.h"
#include "kernels/dispatch.h"
#include "kernels/kernel.h"
#include "kernels/registry.h"

namespace millrace::kernels {
namespace arg_extreme {
namespace {

// Index of the first extreme element along the axis.
template <typename T, typename I>
void find(const AxisView& view, bool largest, const T* x, I* out, CpuDevice& device) {
  using C = Compute<T>;
  const int64_t grain = std::max<int64_t>(1, 32768 / std::max<int64_t>(1, view.size));
  device.parallel_for(view.outer * view.inner, grain, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const T* const from = x + r / view.inner * view.size * view.inner + r % view.inner;
      int64_t best = 0;
      C value = static_cast<C>(from[0]);
      for (int64_t j = 1; j < view.size; ++j) {
        const C other = static_cast<C>(from[j * view.inner]);
        if (largest ? other > value : other < value) {
          value = other;
          best = j;
        }
      }
      out[r] = static_cast<I>(best);
    }
  });
}

StatusOr<Kernel> make(const KernelSetup& op, bool largest) {
  const ArgIndex x_arg = op.input("X");
  const ArgIndex out_arg = op.output("Out");
  const auto axis_attr = op.attr<int64_t>("axis");
  const bool flatten = op.attr<bool>("flatten");
  return Kernel([=](const KernelContext& ctx) -> Status {
    const Tensor& x = ctx.in(x_arg);
    Tensor& out = ctx.out(out_arg);
    int64_t axis = 0;
    if (!flatten) {
      MILLRACE_ASSIGN_OR_RETURN(axis, axis_of(axis_attr, x.rank()));
    }
    const int64_t all[] = {x.numel()};
    const AxisView view(flatten ? llvm::ArrayRef<int64_t>(all) : x.dims(),
                        static_cast<size_t>(axis));
    if (view.size == 0)
      return ctx.error("dim {} of X {} has no elements to choose from", axis, describe(x));
    return dispatch<AllNumberTypes>(x.dtype(), [&](auto tag) -> Status {
      using T = typename decltype(tag)::type;
      if (out.dtype() == DType::kInt32) {
        find(view, largest, x.data<T>(), out.data<int32_t>(), ctx.device());
      } else {
        find(view, largest, x.data<T>(), out.data<int64_t>(), ctx.device());
      }
      return Ok();
    });
  });
}

StatusOr<Kernel> arg_max(const KernelSetup& op) {
  return make(op, true);
}
StatusOr<Kernel> arg_min(const KernelSetup& op) {
  return make(op, false);
}

}  // namespace
}  // namespace arg_extreme

void add_tensor_arg_extreme(KernelRegistry& registry) {
  using namespace arg_extreme;
  registry.add("arg_max", arg_max);
  registry.add("arg_min", arg_min);
}

}  // namespace millrace::kernels
