#include <limits>
#include <type_traits>

#include "kernels/cpu/elementwise/binary.h"
#include "kernels/cpu/elementwise/elementwise.h"

namespace millrace::kernels {
namespace {

// Integers wrap around; unsigned arithmetic says so without undefined behaviour.
template <typename T, typename Op>
T wrapped(T x, T y, Op op) {
  if constexpr (std::is_integral_v<T>) {
    using U = std::make_unsigned_t<T>;
    return static_cast<T>(op(static_cast<U>(x), static_cast<U>(y)));
  } else {
    return op(x, y);
  }
}

struct Add {
  template <typename T>
  static T value(T x, T y) {
    return wrapped(x, y, [](auto a, auto b) { return a + b; });
  }
};
struct Sub {
  template <typename T>
  static T value(T x, T y) {
    return wrapped(x, y, [](auto a, auto b) { return a - b; });
  }
};
struct Mul {
  template <typename T>
  static T value(T x, T y) {
    return wrapped(x, y, [](auto a, auto b) { return a * b; });
  }
  template <typename T>
  static T grad_x(T /*x*/, T y, T dout) {
    return dout * y;
  }
  template <typename T>
  static T grad_y(T x, T /*y*/, T dout) {
    return dout * x;
  }
};
struct Div {
  static constexpr bool kDivides = true;
  template <typename T>
  static T value(T x, T y) {
    if constexpr (std::is_integral_v<T>) {
      // The quotient of the smallest number and -1 does not fit and traps.
      return y == T(-1) ? wrapped(T(0), x, [](auto a, auto b) { return a - b; }) : x / y;
    } else {
      return x / y;
    }
  }
  template <typename T>
  static T grad_x(T /*x*/, T y, T dout) {
    return dout / y;
  }
  template <typename T>
  static T grad_y(T x, T y, T dout) {
    return -dout * (x / y) / y;
  }
};

// Gradients of sum and difference, which need no operand but their shapes.
StatusOr<Kernel> copied_grad(const KernelSetup& op, bool negative_y) {
  return Kernel([=, args = BinaryGradArgs(op),
                 cache = BroadcastCache()](const KernelContext& ctx) mutable -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const BinaryGradInputs in, binary_grad_inputs(ctx, args, cache));
    return dispatch<FloatTypes>(in.dtype, [&](auto tag) -> Status {
      using T = typename decltype(tag)::type;
      const auto run = [&](size_t operand, ArgIndex arg, bool negative) -> Status {
        Tensor* const grad = ctx.find_out(arg);
        if (grad == nullptr) return Ok();
        MILLRACE_ASSIGN_OR_RETURN(const WideOutput out,
                                  WideOutput::open(ctx.device(), *grad, in.dtype, 3));
        run_copied_grad(ctx.device(), *in.nest, operand, negative,
                        reinterpret_cast<const T*>(in.dout), out.template data<T>(), grad->numel());
        return out.finish();
      };
      // X last: its gradient may stand where the incoming one is.
      MILLRACE_RETURN_IF_ERROR(run(kOfY, args.dy, negative_y));
      return run(kOfX, args.dx, false);
    });
  });
}

StatusOr<Kernel> add_grad(const KernelSetup& op) {
  return copied_grad(op, false);
}
StatusOr<Kernel> sub_grad(const KernelSetup& op) {
  return copied_grad(op, true);
}

}  // namespace

void add_arithmetic(KernelRegistry& registry) {
  registry.add("elementwise_add", binary<Add>);
  registry.add("elementwise_add_grad", add_grad);
  registry.add("elementwise_sub", binary<Sub>);
  registry.add("elementwise_sub_grad", sub_grad);
  registry.add("minus", binary<Sub>);
  registry.add("elementwise_mul", binary<Mul>);
  registry.add("elementwise_mul_grad", binary_grad<Mul>);
  registry.add("elementwise_div", binary<Div>);
  registry.add("elementwise_div_grad", binary_grad<Div>);
}

}  // namespace millrace::kernels
