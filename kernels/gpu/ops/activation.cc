#include "kernels/gpu/ops/args.h"
#include "kernels/registry.h"

namespace millrace::gpu {
namespace {

template <typename Formula>
StatusOr<Kernel> forward_activation(const KernelSetup& op) {
  return Kernel([&device = device_of(op), x = op.input("X"),
                 out = op.output("Out")](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const from, needed_here(ctx, x, "X"));
    Tensor& to = ctx.out(out);
    MILLRACE_RETURN_IF_ERROR(all_floats({from, &to}));
    return each(device, Unary<Formula>{floats(from), floats(to)}, from->numel());
  });
}

// \param slot  the input that the formula reads in addition to the gradient
template <typename Formula>
StatusOr<Kernel> backward_from(const KernelSetup& op, const char* slot) {
  return Kernel([&device = device_of(op), slot, out = op.input(slot), dout = op.input("Out@GRAD"),
                 dx = op.output("X@GRAD")](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const y, needed_here(ctx, out, slot));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const dy, needed_here(ctx, dout, "Out@GRAD"));
    MILLRACE_ASSIGN_OR_RETURN(Tensor* const to, output_like(ctx, dx, *y));
    if (to == nullptr) return Ok();
    MILLRACE_RETURN_IF_ERROR(all_floats({y, dy}));
    if (dy->numel() != y->numel())
      return refuse("{} {} and Out@GRAD {} differ", slot, describe(*y), describe(*dy));
    return each(device, Gradient<Formula>{floats(y), floats(dy), floats(to)}, y->numel());
  });
}

template <typename Formula>
StatusOr<Kernel> backward_activation(const KernelSetup& op) {
  return backward_from<Formula>(op, "Out");
}
StatusOr<Kernel> square_backward(const KernelSetup& op) {
  return backward_from<SquareGradient>(op, "X");
}

}  // namespace

void add_activation(KernelRegistry& registry) {
  registry.add("relu", forward_activation<Relu>);
  registry.add("relu_grad", backward_activation<ReluGradient>);
  registry.add("sigmoid", forward_activation<Sigmoid>);
  registry.add("sigmoid_grad", backward_activation<SigmoidGradient>);
  registry.add("tanh", forward_activation<Tanh>);
  registry.add("tanh_grad", backward_activation<TanhGradient>);
  registry.add("sqrt", forward_activation<Sqrt>);
  registry.add("square", forward_activation<Square>);
  registry.add("square_grad", square_backward);
}

}  // namespace millrace::gpu
