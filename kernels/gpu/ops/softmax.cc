#include "kernels/gpu/ops/args.h"
#include "kernels/registry.h"

namespace millrace::gpu {
namespace {

// Columns of rows along the last dim. Errors: rejects another axis.
StatusOr<int64_t> gpu_columns_of(const Tensor& x, int64_t axis) {
  const auto rank = static_cast<int64_t>(x.rank());
  if (rank == 0 || x.numel() == 0 || (axis != -1 && axis != rank - 1))
    return refuse("the GPU kernel takes softmax along the last dim, found axis {} of {}", axis,
                  describe(x));
  return x.dim(-1);
}

StatusOr<Kernel> forward_softmax(const KernelSetup& op) {
  return Kernel([&device = device_of(op), x = op.input("X"), out = op.output("Out"),
                 axis = op.attr<int32_t>("axis")](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const from, needed_here(ctx, x, "X"));
    MILLRACE_ASSIGN_OR_RETURN(Tensor* const to, output_like(ctx, out, *from));
    MILLRACE_RETURN_IF_ERROR(all_floats({from}));
    MILLRACE_ASSIGN_OR_RETURN(const int64_t columns, gpu_columns_of(*from, axis));
    return rows(device, gpu::Softmax{floats(from), floats(to), columns}, from->numel() / columns);
  });
}

StatusOr<Kernel> backward_softmax(const KernelSetup& op) {
  return Kernel([&device = device_of(op), out = op.input("Out"), dout = op.input("Out@GRAD"),
                 dx = op.output("X@GRAD"),
                 axis = op.attr<int32_t>("axis")](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const FloatGradient found, float_gradient(ctx, out, "Out", dout, dx));
    const auto [y, dy, to] = found;
    if (to == nullptr) return Ok();
    MILLRACE_ASSIGN_OR_RETURN(const int64_t columns, gpu_columns_of(*y, axis));
    if (dy->dims() != y->dims()) return refuse("Out@GRAD {}", describe(*dy));
    return rows(device, gpu::SoftmaxGradient{floats(y), floats(dy), floats(to), columns},
                y->numel() / columns);
  });
}

}  // namespace

void add_softmax(KernelRegistry& registry) {
  registry.add("softmax", forward_softmax);
  registry.add("softmax_grad", backward_softmax);
}

}  // namespace millrace::gpu
