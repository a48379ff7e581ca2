#include "kernels/cpu/elementwise/binary.h"
#include "kernels/registry.h"

namespace millrace::kernels {
namespace {

struct Prelu {
  template <typename T>
  static T value(T x, T alpha) {
    return x > T(0) ? x : alpha * x;
  }
  template <typename T>
  static T grad_x(T x, T alpha, T dout) {
    return x > T(0) ? dout : alpha * dout;
  }
  template <typename T>
  static T grad_y(T x, T /*alpha*/, T dout) {
    return x > T(0) ? T(0) : x * dout;
  }
};

struct Slopes {
  std::string mode;
  bool channels_last;
  explicit Slopes(const KernelSetup& op)
      : mode(op.attr<std::string>("mode")),
        channels_last(op.attr<std::string>("data_format") == "NHWC") {}

  // Maps elements to their slopes.
  StatusOr<BroadcastNest> nest(const Tensor& x, const Tensor& alpha) const {
    const int64_t count = x.numel();
    BroadcastNest nest;
    int64_t expected = 1;
    if (mode == "all") {
      nest.add(count, {1, 0, 1});
    } else if (x.rank() < 2) {
      return KernelContext::error("X must have a rank of at least 2 for mode '{}', found {}", mode,
                                  describe(x));
    } else {
      const int64_t batch = x.dim(0);
      const int64_t row = batch == 0 ? 0 : count / batch;
      const bool channel = mode == "channel";
      expected = !channel ? row : channels_last ? x.dim(-1) : x.dim(1);
      if (batch == 0) expected = alpha.numel();
      if (channel && !channels_last) {
        const int64_t inner = expected == 0 ? 0 : row / expected;
        nest.add(batch, {row, 0, row});
        nest.add(expected, {inner, 1, inner});
        nest.add(inner, {1, 0, 1});
      } else {
        const int64_t outer = expected == 0 ? 0 : count / expected;
        nest.add(outer, {expected, 0, expected});
        nest.add(expected, {1, 1, 1});
      }
    }
    if (alpha.numel() == expected && alpha.dtype() == x.dtype()) return nest;
    return KernelContext::error("Alpha must have {} elements of the type of X {}, found {}",
                                expected, describe(x), describe(alpha));
  }
};

// Other names of layouts are accepted where the layout has no effect.
Status check_channels(const KernelSetup& op) {
  const auto format = op.attr<std::string>("data_format");
  if (op.attr<std::string>("mode") != "channel" || format == "NCHW" || format == "NHWC")
    return Ok();
  return op.error("attribute 'data_format' is '{}', expected NCHW or NHWC for mode 'channel'",
                  format);
}

StatusOr<Kernel> prelu(const KernelSetup& op) {
  MILLRACE_RETURN_IF_ERROR(check_channels(op));
  return Kernel([slopes = Slopes(op), x_arg = op.input("X"), alpha_arg = op.input("Alpha"),
                 out_arg = op.output("Out")](const KernelContext& ctx) -> Status {
    const Tensor& x = ctx.in(x_arg);
    const Tensor& alpha = ctx.in(alpha_arg);
    MILLRACE_ASSIGN_OR_RETURN(const BroadcastNest nest, slopes.nest(x, alpha));
    return dispatch<FloatTypes>(x.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      run_binary(ctx.device(), nest, kBinaryLoops<Prelu, T>, x.data<T>(), alpha.data<T>(),
                 ctx.out(out_arg).data<T>());
      return Ok();
    });
  });
}

StatusOr<Kernel> prelu_grad(const KernelSetup& op) {
  MILLRACE_RETURN_IF_ERROR(check_channels(op));
  return Kernel([slopes = Slopes(op), x_arg = op.input("X"), alpha_arg = op.input("Alpha"),
                 dout_arg = op.input("Out@GRAD"), dx_arg = op.output("X@GRAD"),
                 dalpha_arg = op.output("Alpha@GRAD")](const KernelContext& ctx) -> Status {
    const Tensor& x = ctx.in(x_arg);
    const Tensor& alpha = ctx.in(alpha_arg);
    const Tensor& dout = ctx.in(dout_arg);
    if (dout.dims() != x.dims() || dout.dtype() != x.dtype())
      return ctx.error("Out@GRAD is {}, expected {}", describe(dout), describe(x));
    MILLRACE_ASSIGN_OR_RETURN(const BroadcastNest nest, slopes.nest(x, alpha));
    return dispatch<FloatTypes>(x.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      if (Tensor* const dalpha = ctx.find_out(dalpha_arg)) {
        run_binary_grad(ctx.device(), nest, kBinaryGradLoops<Prelu::grad_y<T>, T>, kOfY,
                        x.data<T>(), alpha.data<T>(), dout.data<T>(), dalpha->data<T>(),
                        dalpha->numel());
      }
      if (Tensor* const dx = ctx.find_out(dx_arg)) {
        run_binary_grad(ctx.device(), nest, kBinaryGradLoops<Prelu::grad_x<T>, T>, kOfX,
                        x.data<T>(), alpha.data<T>(), dout.data<T>(), dx->data<T>(), dx->numel());
      }
      return Ok();
    });
  });
}

}  // namespace

void add_activation_prelu(KernelRegistry& registry) {
  registry.add("prelu", prelu);
  registry.add("prelu_grad", prelu_grad);
}

}  // namespace millrace::kernels
