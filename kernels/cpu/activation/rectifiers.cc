#include "kernels/cpu/elementwise/stage.h"
#include "kernels/cpu/unary.h"
#include "kernels/registry.h"

namespace millrace::kernels {
namespace rectifiers {
namespace {

struct Relu {
  static constexpr bool kIntegers = true;
  static constexpr GradSource kFrom = GradSource::kOut;
  template <typename T>
  T value(T x) const {
    return x > T(0) ? x : T(0);  // 0 for NaN, as where passes put it into another op
  }
  template <typename T>
  T grad(T out, T dout) const {
    return out > T(0) ? dout : T(0);
  }
};

struct Relu6 {
  float threshold;
  explicit Relu6(const KernelSetup& op) : threshold(op.attr<float>("threshold")) {}
  static constexpr GradSource kFrom = GradSource::kOut;
  template <typename T>
  T value(T x) const {
    const T low = x < T(0) ? T(0) : x;
    return low > T(threshold) ? T(threshold) : low;
  }
  template <typename T>
  T grad(T out, T dout) const {
    return out > T(0) && out < T(threshold) ? dout : T(0);
  }
};

struct LeakyRelu {
  float alpha;
  explicit LeakyRelu(const KernelSetup& op) : alpha(op.attr<float>("alpha")) {}
  static constexpr GradSource kFrom = GradSource::kX;
  template <typename T>
  T value(T x) const {
    const T scaled = T(alpha) * x;
    // For slopes above 1 the scaled value is the larger one.
    return alpha < 1.0F ? (x > scaled ? x : scaled) : (x < scaled ? x : scaled);
  }
  template <typename T>
  T grad(T x, T dout) const {
    return x < T(0) ? T(alpha) * dout : dout;
  }
};

struct Brelu {
  float low;
  float high;
  explicit Brelu(const KernelSetup& op)
      : low(op.attr<float>("t_min")), high(op.attr<float>("t_max")) {}
  static constexpr GradSource kFrom = GradSource::kX;
  template <typename T>
  T value(T x) const {
    const T above = x < T(low) ? T(low) : x;
    return above > T(high) ? T(high) : above;
  }
  template <typename T>
  T grad(T x, T dout) const {
    return x > T(low) && x < T(high) ? dout : T(0);
  }
};

struct ThresholdedRelu {
  float threshold;
  explicit ThresholdedRelu(const KernelSetup& op) : threshold(op.attr<float>("threshold")) {}
  static constexpr GradSource kFrom = GradSource::kX;
  template <typename T>
  T value(T x) const {
    return x <= T(threshold) ? T(0) : x;  // NaN stays NaN
  }
  template <typename T>
  T grad(T x, T dout) const {
    return x > T(threshold) ? dout : T(0);
  }
};

struct HardShrink {
  float threshold;
  explicit HardShrink(const KernelSetup& op) : threshold(op.attr<float>("threshold")) {}
  static constexpr GradSource kFrom = GradSource::kX;
  template <typename T>
  T value(T x) const {
    return x >= T(-threshold) && x <= T(threshold) ? T(0) : x;  // NaN stays NaN
  }
  template <typename T>
  T grad(T x, T dout) const {
    return x < T(-threshold) || x > T(threshold) ? dout : T(0);
  }
};

struct SoftShrink {
  float lambda;
  explicit SoftShrink(const KernelSetup& op) : lambda(op.attr<float>("lambda")) {}
  static constexpr GradSource kFrom = GradSource::kX;
  template <typename T>
  T value(T x) const {
    const T above = x <= T(lambda) ? T(0) : x - T(lambda);  // NaN stays NaN
    return x < T(-lambda) ? x + T(lambda) : above;
  }
  template <typename T>
  T grad(T x, T dout) const {
    return x < T(-lambda) || x > T(lambda) ? dout : T(0);
  }
};

struct HardSigmoid {
  float slope;
  float offset;
  explicit HardSigmoid(const KernelSetup& op)
      : slope(op.attr<float>("slope")), offset(op.attr<float>("offset")) {}
  static constexpr GradSource kFrom = GradSource::kOut;
  template <typename T>
  T value(T x) const {
    const T line = x * T(slope) + T(offset);
    const T low = line < T(0) ? T(0) : line;
    return low > T(1) ? T(1) : low;
  }
  template <typename T>
  T grad(T out, T dout) const {
    return out > T(0) && out < T(1) ? dout * T(slope) : T(0);
  }
};

struct HardSwish {
  float threshold;
  float scale;
  float offset;
  explicit HardSwish(const KernelSetup& op)
      : threshold(op.attr<float>("threshold")),
        scale(op.attr<float>("scale")),
        offset(op.attr<float>("offset")) {}
  static constexpr GradSource kFrom = GradSource::kX;
  template <typename T>
  T value(T x) const {
    const T gate = x + T(offset);
    const T low = gate < T(0) ? T(0) : gate;
    return x * (low > T(threshold) ? T(threshold) : low) / T(scale);
  }
  template <typename T>
  T grad(T x, T dout) const {
    const T gate = x + T(offset);
    const T inside = (x + gate) / T(scale);
    const T above = gate < T(threshold) ? inside : T(threshold) / T(scale);
    return gate > T(0) ? dout * above : T(0);
  }
};

// Adds kernels, or the loops of chains.
template <typename Table>
void add_formulas(Table& table) {
  add_unary<Relu>(table, "relu", "relu_grad");
  add_unary<Relu6>(table, "relu6", "relu6_grad");
  add_unary<LeakyRelu>(table, "leaky_relu", "leaky_relu_grad");
  add_unary<Brelu>(table, "brelu", "brelu_grad");
  add_unary<ThresholdedRelu>(table, "thresholded_relu", "thresholded_relu_grad");
  add_unary<HardShrink>(table, "hard_shrink", "hard_shrink_grad");
  add_unary<SoftShrink>(table, "softshrink", "softshrink_grad");
  add_unary<HardSigmoid>(table, "hard_sigmoid", "hard_sigmoid_grad");
  add_unary<HardSwish>(table, "hard_swish", "hard_swish_grad");
}

}  // namespace
}  // namespace rectifiers

/// relu and other piecewise linear functions.
void add_activation_rectifiers(KernelRegistry& registry) {
  rectifiers::add_formulas(registry);
}
void add_rectifiers(StageTable& table) {
  rectifiers::add_formulas(table);
}

}  // namespace millrace::kernels
