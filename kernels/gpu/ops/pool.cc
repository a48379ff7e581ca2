#include <memory>

#include "kernels/gpu/ops/args.h"
#include "kernels/gpu/ops/channels_first.h"
#include "kernels/gpu/ops/kept_memory.h"
#include "kernels/gpu/ops/pool_settings.h"
#include "kernels/registry.h"

namespace millrace::gpu {
namespace {

using kernels::PoolAttrs;

// Uses the shapes in the CPU kernel's plan; four numbers per dim replace its lists of windows.
StatusOr<PoolWindows> windows_of(const PoolAttrs& attrs, const Tensor& x, const Tensor& out) {
  if (x.rank() != 4) return refuse("X {}", describe(x));
  const StatusOr<kernels::PoolPlan> plan = kernels::plan_pool(attrs, x.dims(), out.dims());
  if (!plan.ok()) return refuse("{}", plan.status().message());
  const auto side = [&](const kernels::PoolAxis& axis) {
    return PoolSide{axis.size,   axis.places,    axis.kernel,    axis.stride,
                    axis.before, attrs.shares(), attrs.exclusive};
  };
  return PoolWindows{side(plan->axes[1]), side(plan->axes[2]), plan->max};
}

StatusOr<Kernel> gpu_pool(const KernelSetup& op) {
  return forward_pool(
      op, [](const PoolAttrs& attrs, const Tensor& x, Tensor& out) -> StatusOr<PoolForward> {
        MILLRACE_ASSIGN_OR_RETURN(const PoolWindows windows, windows_of(attrs, x, out));
        return PoolForward{windows, floats(x), floats(out)};
      });
}

StatusOr<Kernel> gpu_pool_grad(const KernelSetup& op) {
  const PoolAttrs attrs = read_pool_settings(op);
  Kernel kernel([attrs, &device = device_of(op), x = op.input("X"), out = op.input("Out"),
                 dout = op.input("Out@GRAD"), dx = op.output("X@GRAD"),
                 memory = std::make_shared<KeptMemory<int32_t>>(
                     memory_of(op), "maxima of pool2d_grad")](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const from, needed_here(ctx, x, "X"));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const y, needed_here(ctx, out, "Out"));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const dy, needed_here(ctx, dout, "Out@GRAD"));
    MILLRACE_ASSIGN_OR_RETURN(Tensor* const to, output_like(ctx, dx, *from));
    if (to == nullptr) return Ok();
    MILLRACE_RETURN_IF_ERROR(all_floats({from, dy}));
    if (dy->dims() != y->dims()) return refuse("Out@GRAD {}", describe(*dy));
    MILLRACE_ASSIGN_OR_RETURN(const PoolWindows windows, windows_of(attrs, *from, *y));
    int32_t* index = nullptr;
    if (windows.max) {
      if (from->dim(2) * from->dim(3) > INT32_MAX) return refuse("X {}", describe(*from));
      MILLRACE_ASSIGN_OR_RETURN(index, memory->get(dy->numel()));
      MILLRACE_RETURN_IF_ERROR(
          each(device, PoolFirstMaximum{windows, floats(from), index}, dy->numel()));
    }
    return each(device, PoolBackward{windows, index, floats(dy), floats(to)}, to->numel());
  });
  return in_channels_first(op, kernels::read_pool_attrs(op).channels_last,
                           {"X", "Out", "Out@GRAD", "X@GRAD"}, std::move(kernel));
}

}  // namespace

void add_pool(KernelRegistry& registry) {
  registry.add("pool2d", gpu_pool);
  registry.add("pool2d_grad", gpu_pool_grad);
}

}  // namespace millrace::gpu
