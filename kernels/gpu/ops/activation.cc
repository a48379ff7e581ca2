#include "kernels/gpu/ops/args.h"
#include "kernels/registry.h"

namespace millrace::gpu {
namespace {

template <typename Formula>
StatusOr<Kernel> forward_activation(const KernelSetup& op) {
  return Kernel([args = FloatArgs(op)](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const FloatOperands found, args.find(ctx));
    const auto [from, to] = found;
    return each(args.device, Unary<Formula>{floats(from), floats(to)}, from->numel());
  });
}

// \param slot  the input that the formula reads in addition to the gradient
template <typename Formula>
StatusOr<Kernel> backward_from(const KernelSetup& op, const char* slot) {
  return Kernel([&device = device_of(op), slot, out = op.input(slot), dout = op.input("Out@GRAD"),
                 dx = op.output("X@GRAD")](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const FloatGradient found, float_gradient(ctx, out, slot, dout, dx));
    const auto [y, dy, to] = found;
    if (to == nullptr) return Ok();
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
