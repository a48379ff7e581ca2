#include <algorithm>
#include <limits>
#include <optional>
#include <type_traits>

#include "kernels/cpu/elementwise/binary.h"
#include "kernels/cpu/layouts.h"
#include "kernels/registry.h"

namespace millrace::kernels {
namespace {

// Integers wrap around; unsigned arithmetic does this without undefined behaviour.
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
      // The quotient of the smallest integer and -1 is not representable; the division would trap.
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

// The gradient of an operand with the dims of the result; it gets the layout of the result.
Status copy_in_layout(const KernelContext& ctx, const Tensor& dout, bool negative, Tensor& grad) {
  const Dims dims(dout.dims().begin(), dout.dims().end());
  MILLRACE_RETURN_IF_ERROR(grad.resize(DType::kFloat32, dims, dout.layout()));
  const auto* const from = stored<float>(dout);
  auto* const to = stored<float>(grad);
  if (to == from && !negative) return Ok();
  const float factor = negative ? -1.0F : 1.0F;
  ctx.device().parallel_for(stored_count(dout), kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) to[i] = factor * from[i];
  });
  return Ok();
}

// The gradient of an operand with one element for each channel.
void sum_by_channel(const ChannelBlocks& l, const Tensor& dout, bool negative, Tensor& grad) {
  const float factor = negative ? -1.0F : 1.0F;
  const auto* const from = stored<float>(dout);
  constexpr int64_t kLanes = 8;
  for (int64_t first = 0; first < l.channels; first += kLanes) {
    const int64_t plane = l.inner * l.lanes;
    float sums[kLanes] = {};
    for (int64_t n = 0; n < l.outer; ++n) {
      const float* at = from + (n * l.blocks + first / l.lanes) * plane + first % l.lanes;
      float image[kLanes] = {};
      for (int64_t i = 0; i < l.inner; ++i, at += l.lanes) {
        for (int64_t k = 0; k < kLanes; ++k) image[k] += at[k];
      }
      for (int64_t k = 0; k < kLanes; ++k) sums[k] += image[k];
    }
    for (int64_t k = 0; k < std::min(kLanes, l.channels - first); ++k)
      grad.data<float>()[first + k] = factor * sums[k];
  }
}

// Computes both gradients from an incoming gradient in a library layout, if each operand has the
// dims of the result or one element per channel. Otherwise converts it to row-major order and
// returns false.
StatusOr<bool> copied_grad_in_layout(const KernelContext& ctx, const BinaryGradArgs& args,
                                     bool negative_y) {
  const Tensor& dout = ctx.in(args.dout);
  const std::optional<ChannelBlocks> blocks = channel_blocks(dout);
  const Tensor* const y = ctx.find_in(args.y);
  Tensor* const dx = ctx.find_out(args.dx);
  Tensor* const dy = ctx.find_out(args.dy);
  const bool by_channel =
      dy != nullptr && y != nullptr && y->rank() == 1 && blocks && y->numel() == blocks->channels &&
      (args.axis == 1 || (args.axis == -1 && dout.rank() == 2)) && dy->dims() == y->dims();
  const auto copies = [&](const Tensor* grad) {
    return grad == nullptr || grad->dims() == dout.dims();
  };
  if (dout.dtype() != DType::kFloat32 || !copies(dx) || (!by_channel && !copies(dy))) {
    MILLRACE_RETURN_IF_ERROR(bring_to_plain(ctx, {args.dout}));
    return false;
  }
  // X last: its gradient may share memory with the incoming one.
  if (by_channel) {
    sum_by_channel(*blocks, dout, negative_y, *dy);
  } else if (dy != nullptr) {
    MILLRACE_RETURN_IF_ERROR(copy_in_layout(ctx, dout, negative_y, *dy));
  }
  if (dx != nullptr) MILLRACE_RETURN_IF_ERROR(copy_in_layout(ctx, dout, /*negative=*/false, *dx));
  return true;
}

// Gradients of sum and difference, which need only the shapes of the operands.
StatusOr<Kernel> copied_grad(const KernelSetup& op, bool negative_y) {
  const BinaryGradArgs args(op);
  for (const ArgIndex arg : {args.x, args.y, args.dout}) op.accept_layout(arg);
  return Kernel([=, cache = BroadcastCache()](const KernelContext& ctx) mutable -> Status {
    const Tensor* const dout = ctx.find_in(args.dout);
    if (dout != nullptr && dout->layout() != nullptr) {
      MILLRACE_ASSIGN_OR_RETURN(const bool done, copied_grad_in_layout(ctx, args, negative_y));
      if (done) return Ok();
    }
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
      // X last: its gradient may share memory with the incoming one.
      MILLRACE_RETURN_IF_ERROR(run(kOfY, args.dy, negative_y));
      return run(kOfX, args.dx, false);
    });
  });
}

StatusOr<Kernel> add_grad(const KernelSetup& op) {
  return copied_grad(op, /*negative_y=*/false);
}
StatusOr<Kernel> sub_grad(const KernelSetup& op) {
  return copied_grad(op, /*negative_y=*/true);
}

}  // namespace

/// Sum, difference, product and quotient with their gradients, and minus.
void add_elementwise_arithmetic(KernelRegistry& registry) {
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
