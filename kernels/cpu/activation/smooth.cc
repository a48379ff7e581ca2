#include <cmath>

#include "kernels/cpu/activation/gelu.h"
#include "kernels/cpu/elementwise/stage.h"
#include "kernels/cpu/unary.h"
#include "kernels/cpu/vector_math.h"
#include "kernels/cpu/wide_loops.h"
#include "kernels/registry.h"

namespace millrace::kernels {
namespace smooth {
namespace {

struct Sigmoid {
  static constexpr GradSource kFrom = GradSource::kOut;
  template <typename T>
  T value(T x) const {
    return vmath::sigmoid(x);
  }
  template <typename T>
  T grad(T out, T dout) const {
    return dout * out * (T(1) - out);
  }
};

struct LogSigmoid {
  static constexpr GradSource kFrom = GradSource::kX;
  template <typename T>
  T value(T x) const {
    return -vmath::softplus(-x);
  }
  template <typename T>
  T grad(T x, T dout) const {
    return dout * vmath::sigmoid(-x);
  }
};

struct Tanh {
  static constexpr GradSource kFrom = GradSource::kOut;
  template <typename T>
  T value(T x) const {
    return vmath::tanh(x);
  }
  template <typename T>
  T grad(T out, T dout) const {
    return dout * (T(1) - out * out);
  }
};

struct TanhShrink {
  static constexpr GradSource kFrom = GradSource::kX;
  template <typename T>
  T value(T x) const {
    return x - vmath::tanh(x);
  }
  template <typename T>
  T grad(T x, T dout) const {
    const T y = vmath::tanh(x);
    return dout * (y * y);
  }
};

struct Stanh {
  float a;
  float b;
  explicit Stanh(const KernelSetup& op)
      : a(op.attr<float>("scale_a")), b(op.attr<float>("scale_b")) {}
  static constexpr GradSource kFrom = GradSource::kX;
  template <typename T>
  T value(T x) const {
    return T(b) * vmath::tanh(T(a) * x);
  }
  template <typename T>
  T grad(T x, T dout) const {
    const T y = vmath::tanh(T(a) * x);
    return dout * T(a) * T(b) * (T(1) - y * y);
  }
};

struct SoftSign {
  static constexpr GradSource kFrom = GradSource::kX;
  template <typename T>
  T value(T x) const {
    return x / (T(1) + std::abs(x));
  }
  template <typename T>
  T grad(T x, T dout) const {
    const T y = T(1) + std::abs(x);
    return dout / (y * y);
  }
};

struct Softplus {
  float beta;
  float threshold;
  explicit Softplus(const KernelSetup& op)
      : beta(op.attr<float>("beta")), threshold(op.attr<float>("threshold")) {}
  static constexpr GradSource kFrom = GradSource::kX;
  template <typename T>
  T value(T x) const {
    const T scaled = T(beta) * x;
    const T curve = vmath::softplus(scaled) / T(beta);
    return scaled > T(threshold) ? x : curve;
  }
  template <typename T>
  T grad(T x, T dout) const {
    const T scaled = T(beta) * x;
    const T slope = dout * vmath::sigmoid(scaled);
    return scaled > T(threshold) ? dout : slope;
  }
};

struct SoftRelu {
  float threshold;
  explicit SoftRelu(const KernelSetup& op) : threshold(op.attr<float>("threshold")) {}
  static constexpr GradSource kFrom = GradSource::kOut;
  template <typename T>
  T value(T x) const {
    const T low = x < T(-threshold) ? T(-threshold) : x;
    return vmath::softplus(low > T(threshold) ? T(threshold) : low);
  }
  // The original compares the result with the bounds of x.
  template <typename T>
  T grad(T out, T dout) const {
    const T slope = dout * -vmath::expm1(-out);
    return out > T(-threshold) && out < T(threshold) ? slope : T(0);
  }
};

struct Elu {
  float alpha;
  explicit Elu(const KernelSetup& op) : alpha(op.attr<float>("alpha")) {}
  static constexpr GradSource kFrom = GradSource::kX;
  template <typename T>
  T value(T x) const {
    const T curve = T(alpha) * vmath::expm1(x);
    return x > T(0) ? x : curve;
  }
  template <typename T>
  T grad(T x, T dout) const {
    const T slope = dout * T(alpha) * vmath::exp(x);
    return x > T(0) ? dout : slope;
  }
};

struct Celu {
  float alpha;
  explicit Celu(const KernelSetup& op) : alpha(op.attr<float>("alpha")) {}
  static constexpr GradSource kFrom = GradSource::kX;
  template <typename T>
  T value(T x) const {
    const T curve = T(alpha) * vmath::expm1(x / T(alpha));
    return x > T(0) ? x : curve;
  }
  template <typename T>
  T grad(T x, T dout) const {
    const T slope = dout * vmath::exp(x / T(alpha));
    return x > T(0) ? dout : slope;
  }
};

struct Selu {
  float scale;
  float alpha;
  explicit Selu(const KernelSetup& op)
      : scale(op.attr<float>("scale")), alpha(op.attr<float>("alpha")) {}
  static constexpr GradSource kFrom = GradSource::kOut;
  template <typename T>
  T value(T x) const {
    const T curve = T(alpha) * vmath::expm1(x);
    return T(scale) * (x > T(0) ? x : curve);
  }
  template <typename T>
  T grad(T out, T dout) const {
    return dout * (out > T(0) ? T(scale) : out + T(scale) * T(alpha));
  }
};

struct Silu {
  static constexpr GradSource kFrom = GradSource::kX;
  template <typename T>
  T value(T x) const {
    return x * vmath::sigmoid(x);
  }
  template <typename T>
  T grad(T x, T dout) const {
    const T s = vmath::sigmoid(x);
    return dout * s * (T(1) + x * (T(1) - s));
  }
};

struct Swish {
  float beta;
  explicit Swish(const KernelSetup& op) : beta(op.attr<float>("beta")) {}
  static constexpr GradSource kFrom = GradSource::kX;
  template <typename T>
  T value(T x) const {
    return x * vmath::sigmoid(T(beta) * x);
  }
  template <typename T>
  T grad(T x, T dout) const {
    const T s = vmath::sigmoid(T(beta) * x);
    return dout * s * (T(1) + T(beta) * x * (T(1) - s));
  }
};

struct Mish {
  float threshold;
  explicit Mish(const KernelSetup& op) : threshold(op.attr<float>("threshold")) {}
  static constexpr GradSource kFrom = GradSource::kX;
  template <typename T>
  T plus(T x) const {
    const T curve = vmath::softplus(x);
    return x > T(threshold) ? x : curve;
  }
  template <typename T>
  T value(T x) const {
    return x * vmath::tanh(plus(x));
  }
  template <typename T>
  T grad(T x, T dout) const {
    const T inner = plus(x);
    const T y = vmath::tanh(inner);
    // The sigmoid of x below the threshold; the original's slope above it.
    return dout * (y - x * (T(1) - y * y) * vmath::expm1(-inner));
  }
};

template <typename T>
constexpr T kSqrtHalf = T(0.70710678118654752440);
template <typename T>
constexpr T kSqrtTwoOverPi = T(0.79788456080286535588);

struct GeluTanh {
  static constexpr GradSource kFrom = GradSource::kX;
  template <typename T>
  T value(T x) const {
    const T inner = kSqrtTwoOverPi<T> * (x + T(0.044715) * x * x * x);
    return T(0.5) * x * (T(1) + vmath::tanh(inner));
  }
  template <typename T>
  T grad(T x, T dout) const {
    const T inner = kSqrtTwoOverPi<T> * (x + T(0.044715) * x * x * x);
    const T t = vmath::tanh(inner);
    const T slope = kSqrtTwoOverPi<T> * (T(1) + T(3 * 0.044715) * x * x);
    return dout * T(0.5) * (T(1) + t + x * (T(1) - t * t) * slope);
  }
};

// The loops of Gelu; floats use the wide loops if the processor has them.
StatusOr<Kernel> gelu(const KernelSetup& op) {
  if (op.attr<bool>("approximate")) return unary<GeluTanh>(op);
  detail::UnaryLoops loops = detail::kValueLoops<Gelu>;
  if (const WideLoops* const wide = wide_loops()) loops.f32 = wide->gelu;
  return Kernel([loops, args = detail::value_args(op)](const KernelContext& ctx) {
    const Gelu formula;
    return detail::run_unary(ctx, args, loops, &formula);
  });
}
StatusOr<Kernel> gelu_grad(const KernelSetup& op) {
  if (op.attr<bool>("approximate")) return unary_grad<GeluTanh>(op);
  MILLRACE_ASSIGN_OR_RETURN(const detail::UnaryArgs args, detail::grad_args(op, Gelu::kFrom));
  detail::UnaryLoops loops = detail::kGradLoops<Gelu>;
  if (const WideLoops* const wide = wide_loops()) loops.f32 = wide->gelu_grad;
  return Kernel([loops, args](const KernelContext& ctx) {
    const Gelu formula;
    return args.out ? detail::run_unary(ctx, args, loops, &formula) : Ok();
  });
}

// Adds kernels, or the loops of chains.
template <typename Table>
void add_formulas(Table& table) {
  add_unary<Sigmoid>(table, "sigmoid", "sigmoid_grad");
  add_unary<LogSigmoid>(table, "logsigmoid", "logsigmoid_grad");
  add_unary<Tanh>(table, "tanh", "tanh_grad");
  add_unary<TanhShrink>(table, "tanh_shrink", "tanh_shrink_grad");
  add_unary<Stanh>(table, "stanh", "stanh_grad");
  add_unary<SoftSign>(table, "softsign", "softsign_grad");
  add_unary<Softplus>(table, "softplus", "softplus_grad");
  add_unary<SoftRelu>(table, "soft_relu", "soft_relu_grad");
  add_unary<Elu>(table, "elu", "elu_grad");
  add_unary<Celu>(table, "celu", "celu_grad");
  add_unary<Selu>(table, "selu", "selu_grad");
  add_unary<Silu>(table, "silu", "silu_grad");
  add_unary<Swish>(table, "swish", "swish_grad");
  add_unary<Mish>(table, "mish", "mish_grad");
}

}  // namespace
}  // namespace smooth

/// sigmoid, tanh, gelu and other smooth functions.
void add_activation_smooth(KernelRegistry& registry) {
  using namespace smooth;
  add_formulas(registry);
  registry.add("gelu", gelu);
  registry.add("gelu_grad", gelu_grad);
}
void add_smooth_activations(StageTable& table) {
  smooth::add_formulas(table);
}

}  // namespace millrace::kernels
