#pragma once

#include <cmath>
#include <cstdint>

// Formulas of ops with one operand: of(x), and grad(v, dout), where v is x or the result.
//
// A formula is a struct with the op's attributes, so that one kernel serves all of them: Unary<F>
// stores of(x) for every element, Gradient<F> stores grad(v, dout). What grad() reads as v is what
// the gradient op has as an input, and is said at each formula. Both give what the kernel of the
// processor gives but for rounding, also at the bends of piecewise functions and for NaN.
namespace millrace::gpu {

/// A number in the type of x: formulas compute in f32 and f64.
template <typename T>
constexpr T like(T /*x*/, double number) {
  return static_cast<T>(number);
}
/// x limited to [low, high]; NaN stays NaN.
constexpr auto between(auto x, float low, float high) {
  const auto above = x < low ? static_cast<decltype(x)>(low) : x;
  return above > high ? static_cast<decltype(above)>(high) : above;
}
/// 1 / (1 + exp(-x)).
constexpr auto logistic(auto x) {
  return 1.0F / (1.0F + std::exp(-x));
}
/// log(1 + exp(x)) without overflow.
constexpr auto softplus_of(auto x) {
  return (x > 0.0F ? x : 0.0F) + std::log1p(std::exp(-std::abs(x)));
}

// Piecewise linear functions.
/// NaN becomes 0. Op relu; the gradient reads the result.
struct Relu {
  [[nodiscard]] constexpr auto of(auto x) const { return x > 0.0F ? x : 0.0F; }
  [[nodiscard]] constexpr auto grad(auto v, auto dout) const { return v > 0.0F ? dout : 0.0F; }
};
/// Op relu6; the gradient reads the result.
/// x limited to [0, threshold].
struct Relu6 {
  float threshold;  ///< bound of the curve
  [[nodiscard]] constexpr auto of(auto x) const { return between(x, 0.0F, threshold); }
  [[nodiscard]] constexpr auto grad(auto v, auto dout) const {
    return v > 0.0F && v < threshold ? dout : 0.0F;
  }
};
/// Op leaky_relu; the gradient reads x.
/// x above 0, else alpha x.
struct LeakyRelu {
  float alpha;  ///< slope or scale below 0
  [[nodiscard]] constexpr auto of(auto x) const {
    return alpha < 1.0F ? (x > alpha * x ? x : alpha * x) : (x < alpha * x ? x : alpha * x);
  }
  [[nodiscard]] constexpr auto grad(auto v, auto dout) const {
    return v < 0.0F ? alpha * dout : dout;
  }
};
/// Op thresholded_relu; the gradient reads x.
/// x above the threshold, else 0.
struct ThresholdedRelu {
  float threshold;  ///< bound of the curve
  [[nodiscard]] constexpr auto of(auto x) const { return x <= threshold ? 0.0F : x; }
  [[nodiscard]] constexpr auto grad(auto v, auto dout) const { return v > threshold ? dout : 0.0F; }
};
/// Op hard_shrink; the gradient reads x.
/// x, and 0 within the threshold of 0.
struct HardShrink {
  float threshold;  ///< bound of the curve
  [[nodiscard]] constexpr auto of(auto x) const {
    return x >= -threshold && x <= threshold ? 0.0F : x;
  }
  [[nodiscard]] constexpr auto grad(auto v, auto dout) const {
    return v < -threshold || v > threshold ? dout : 0.0F;
  }
};
/// Op softshrink; the gradient reads x.
/// x moved by lambda towards 0, and 0 within lambda of it.
struct SoftShrink {
  float lambda;  ///< half the width of the zero range
  [[nodiscard]] constexpr auto of(auto x) const {
    return x < -lambda ? x + lambda : (x <= lambda ? 0.0F : x - lambda);
  }
  [[nodiscard]] constexpr auto grad(auto v, auto dout) const {
    return v < -lambda || v > lambda ? dout : 0.0F;
  }
};
/// Op hard_sigmoid; the gradient reads the result.
/// slope x + offset, limited to [0, 1].
struct HardSigmoid {
  float slope;   ///< of the line
  float offset;  ///< of the line at 0
  [[nodiscard]] constexpr auto of(auto x) const { return between(x * slope + offset, 0.0F, 1.0F); }
  [[nodiscard]] constexpr auto grad(auto v, auto dout) const {
    return v > 0.0F && v < 1.0F ? dout * slope : 0.0F;
  }
};
/// Op hard_swish; the gradient reads x.
/// x times (x + offset, limited to [0, threshold]), divided by scale.
struct HardSwish {
  float threshold;  ///< bound of the curve
  float scale;      ///< factor of the result
  float offset;     ///< of the line at 0
  [[nodiscard]] constexpr auto of(auto x) const {
    return x * between(x + offset, 0.0F, threshold) / scale;
  }
  [[nodiscard]] constexpr auto grad(auto v, auto dout) const {
    return v + offset > 0.0F
               ? dout * (v + offset < threshold ? (v + v + offset) / scale : threshold / scale)
               : 0.0F;
  }
};
/// Op abs; the gradient reads x.
struct Abs {
  [[nodiscard]] constexpr auto of(auto x) const { return x < 0.0F ? -x : (x == 0.0F ? 0.0F : x); }
  [[nodiscard]] constexpr auto grad(auto v, auto dout) const {
    return v > 0.0F ? dout : (v < 0.0F ? -dout : 0.0F);
  }
};
/// Op floor; the gradient reads nothing.
struct Floor {
  [[nodiscard]] constexpr auto of(auto x) const { return std::floor(x); }
  [[nodiscard]] constexpr auto grad(auto /*v*/, auto /*dout*/) const { return 0.0F; }
};
/// Op ceil; the gradient reads nothing.
struct Ceil {
  [[nodiscard]] constexpr auto of(auto x) const { return std::ceil(x); }
  [[nodiscard]] constexpr auto grad(auto /*v*/, auto /*dout*/) const { return 0.0F; }
};
/// Op round; the gradient reads nothing.
struct Round {
  [[nodiscard]] constexpr auto of(auto x) const { return std::round(x); }
  [[nodiscard]] constexpr auto grad(auto /*v*/, auto /*dout*/) const { return 0.0F; }
};
/// Op trunc; the gradient reads nothing.
struct Trunc {
  [[nodiscard]] constexpr auto of(auto x) const { return std::trunc(x); }
  [[nodiscard]] constexpr auto grad(auto /*v*/, auto /*dout*/) const { return 0.0F; }
};

// Smooth functions of networks.
/// Op sigmoid; the gradient reads the result.
struct Sigmoid {
  [[nodiscard]] constexpr auto of(auto x) const { return logistic(x); }
  [[nodiscard]] constexpr auto grad(auto v, auto dout) const { return dout * (1.0F - v) * v; }
};
/// Op logsigmoid; the gradient reads x.
/// -log(1 + exp(-x)).
struct LogSigmoid {
  [[nodiscard]] constexpr auto of(auto x) const { return -softplus_of(-x); }
  [[nodiscard]] constexpr auto grad(auto v, auto dout) const { return dout * logistic(-v); }
};
/// Op tanh; the gradient reads the result.
struct Tanh {
  [[nodiscard]] constexpr auto of(auto x) const { return std::tanh(x); }
  [[nodiscard]] constexpr auto grad(auto v, auto dout) const { return dout * (1.0F - v * v); }
};
/// Op tanh_shrink; the gradient reads x.
/// x - tanh(x).
struct TanhShrink {
  [[nodiscard]] constexpr auto of(auto x) const { return x - std::tanh(x); }
  [[nodiscard]] constexpr auto grad(auto v, auto dout) const {
    return dout * std::tanh(v) * std::tanh(v);
  }
};
/// Op stanh; the gradient reads x.
/// b tanh(a x).
struct ScaledTanh {
  float a;  ///< factor of x
  float b;  ///< factor of the result
  [[nodiscard]] constexpr auto of(auto x) const { return b * std::tanh(a * x); }
  [[nodiscard]] constexpr auto grad(auto v, auto dout) const {
    return dout * a * b * (1.0F - std::tanh(a * v) * std::tanh(a * v));
  }
};
/// Op softsign; the gradient reads x.
/// x / (1 + |x|).
struct SoftSign {
  [[nodiscard]] constexpr auto of(auto x) const { return x / (1.0F + std::abs(x)); }
  [[nodiscard]] constexpr auto grad(auto v, auto dout) const {
    return dout / ((1.0F + std::abs(v)) * (1.0F + std::abs(v)));
  }
};
/// Op softplus; the gradient reads x.
/// log(1 + exp(beta x)) / beta, and x where beta x is above the threshold.
struct Softplus {
  float beta;       ///< factor of x within the function
  float threshold;  ///< bound of the curve
  [[nodiscard]] constexpr auto of(auto x) const {
    return beta * x > threshold ? x : softplus_of(beta * x) / beta;
  }
  [[nodiscard]] constexpr auto grad(auto v, auto dout) const {
    return beta * v > threshold ? dout : dout * logistic(beta * v);
  }
};
/// As in the original, the gradient compares the result with the bounds of x.
/// Op soft_relu; the gradient reads the result.
struct SoftRelu {
  float threshold;  ///< bound of the curve
  [[nodiscard]] constexpr auto of(auto x) const {
    return softplus_of(between(x, -threshold, threshold));
  }
  [[nodiscard]] constexpr auto grad(auto v, auto dout) const {
    return v > -threshold && v < threshold ? dout * -std::expm1(-v) : 0.0F;
  }
};
/// Op elu; the gradient reads x.
/// x above 0, else alpha (exp(x) - 1).
struct Elu {
  float alpha;  ///< slope or scale below 0
  [[nodiscard]] constexpr auto of(auto x) const { return x > 0.0F ? x : alpha * std::expm1(x); }
  [[nodiscard]] constexpr auto grad(auto v, auto dout) const {
    return v > 0.0F ? dout : dout * alpha * std::exp(v);
  }
};
/// Op celu; the gradient reads x.
/// x above 0, else alpha (exp(x / alpha) - 1).
struct Celu {
  float alpha;  ///< slope or scale below 0
  [[nodiscard]] constexpr auto of(auto x) const {
    return x > 0.0F ? x : alpha * std::expm1(x / alpha);
  }
  [[nodiscard]] constexpr auto grad(auto v, auto dout) const {
    return v > 0.0F ? dout : dout * std::exp(v / alpha);
  }
};
/// Op selu; the gradient reads the result.
/// scale x above 0, else scale alpha (exp(x) - 1).
struct Selu {
  float scale;  ///< factor of the result
  float alpha;  ///< slope or scale below 0
  [[nodiscard]] constexpr auto of(auto x) const {
    return scale * (x > 0.0F ? x : alpha * std::expm1(x));
  }
  [[nodiscard]] constexpr auto grad(auto v, auto dout) const {
    return dout * (v > 0.0F ? scale : v + scale * alpha);
  }
};
/// Op silu; the gradient reads x.
/// x sigmoid(x).
struct Silu {
  [[nodiscard]] constexpr auto of(auto x) const { return x * logistic(x); }
  [[nodiscard]] constexpr auto grad(auto v, auto dout) const {
    return dout * logistic(v) * (1.0F + v * (1.0F - logistic(v)));
  }
};
/// Op swish; the gradient reads x.
/// x sigmoid(beta x).
struct Swish {
  float beta;  ///< factor of x within the function
  [[nodiscard]] constexpr auto of(auto x) const { return x * logistic(beta * x); }
  [[nodiscard]] constexpr auto grad(auto v, auto dout) const {
    return dout * logistic(beta * v) * (1.0F + beta * v * (1.0F - logistic(beta * v)));
  }
};
/// Op mish; the gradient reads x.
/// x tanh(log(1 + exp(x))).
struct Mish {
  float threshold;  ///< bound of the curve
  /// Softplus, which is x above the threshold.
  [[nodiscard]] constexpr auto plus(auto x) const { return x > threshold ? x : softplus_of(x); }
  [[nodiscard]] constexpr auto of(auto x) const { return x * std::tanh(plus(x)); }
  [[nodiscard]] constexpr auto grad(auto v, auto dout) const {
    return dout * (std::tanh(plus(v)) -
                   v * (1.0F - std::tanh(plus(v)) * std::tanh(plus(v))) * std::expm1(-plus(v)));
  }
};
/// Op gelu; the gradient reads x.
/// x times the normal distribution function at x, by erf.
struct Gelu {
  [[nodiscard]] constexpr auto of(auto x) const {
    return 0.5F * x * (1.0F + std::erf(x * like(x, 0.70710678118654752440)));
  }
  [[nodiscard]] constexpr auto grad(auto v, auto dout) const {
    return dout * (0.5F * (1.0F + std::erf(v * like(v, 0.70710678118654752440))) +
                   v * like(v, 0.39894228040143267794) * std::exp(-0.5F * v * v));
  }
};
/// Op erf; the gradient reads x.
struct Erf {
  [[nodiscard]] constexpr auto of(auto x) const { return std::erf(x); }
  [[nodiscard]] constexpr auto grad(auto v, auto dout) const {
    return dout * like(v, 1.12837916709551257390) * std::exp(-(v * v));
  }
};

// Powers, logarithms and trigonometry.
/// Op exp; the gradient reads the result.
struct Exp {
  [[nodiscard]] constexpr auto of(auto x) const { return std::exp(x); }
  [[nodiscard]] constexpr auto grad(auto v, auto dout) const { return dout * v; }
};
/// Op expm1; the gradient reads the result.
/// exp(x) - 1, exact near 0.
struct Expm1 {
  [[nodiscard]] constexpr auto of(auto x) const { return std::expm1(x); }
  [[nodiscard]] constexpr auto grad(auto v, auto dout) const { return dout * v + dout; }
};
/// Op log; the gradient reads x.
struct Log {
  [[nodiscard]] constexpr auto of(auto x) const { return std::log(x); }
  [[nodiscard]] constexpr auto grad(auto v, auto dout) const { return dout / v; }
};
/// Op log2; the gradient reads x.
struct Log2 {
  [[nodiscard]] constexpr auto of(auto x) const { return std::log2(x); }
  [[nodiscard]] constexpr auto grad(auto v, auto dout) const {
    return dout / (v * like(v, 0.69314718055994530942));
  }
};
/// Op log10; the gradient reads x.
struct Log10 {
  [[nodiscard]] constexpr auto of(auto x) const { return std::log10(x); }
  [[nodiscard]] constexpr auto grad(auto v, auto dout) const {
    return dout / (v * like(v, 2.30258509299404568402));
  }
};
/// Op log1p; the gradient reads x.
/// log(1 + x), exact near 0.
struct Log1p {
  [[nodiscard]] constexpr auto of(auto x) const { return std::log1p(x); }
  [[nodiscard]] constexpr auto grad(auto v, auto dout) const { return dout / (v + 1.0F); }
};
/// Op sqrt; the gradient reads the result.
struct Sqrt {
  [[nodiscard]] constexpr auto of(auto x) const { return std::sqrt(x); }
  [[nodiscard]] constexpr auto grad(auto v, auto dout) const { return 0.5F * dout / v; }
};
/// Op rsqrt; the gradient reads the result.
/// 1 / sqrt(x).
struct Rsqrt {
  [[nodiscard]] constexpr auto of(auto x) const { return 1.0F / std::sqrt(x); }
  [[nodiscard]] constexpr auto grad(auto v, auto dout) const { return -0.5F * dout * v * v * v; }
};
/// Op square; the gradient reads x.
struct Square {
  [[nodiscard]] constexpr auto of(auto x) const { return x * x; }
  [[nodiscard]] constexpr auto grad(auto v, auto dout) const { return 2.0F * dout * v; }
};
/// Op reciprocal; the gradient reads the result.
struct Reciprocal {
  [[nodiscard]] constexpr auto of(auto x) const { return 1.0F / x; }
  [[nodiscard]] constexpr auto grad(auto v, auto dout) const { return -dout * v * v; }
};
/// Op sin; the gradient reads x.
struct Sin {
  [[nodiscard]] constexpr auto of(auto x) const { return std::sin(x); }
  [[nodiscard]] constexpr auto grad(auto v, auto dout) const { return dout * std::cos(v); }
};
/// Op cos; the gradient reads x.
struct Cos {
  [[nodiscard]] constexpr auto of(auto x) const { return std::cos(x); }
  [[nodiscard]] constexpr auto grad(auto v, auto dout) const { return -dout * std::sin(v); }
};
/// Op tan; the gradient reads x.
struct Tan {
  [[nodiscard]] constexpr auto of(auto x) const { return std::tan(x); }
  [[nodiscard]] constexpr auto grad(auto v, auto dout) const {
    return dout / (std::cos(v) * std::cos(v));
  }
};
/// Op asin; the gradient reads x.
struct Asin {
  [[nodiscard]] constexpr auto of(auto x) const { return std::asin(x); }
  [[nodiscard]] constexpr auto grad(auto v, auto dout) const {
    return dout / std::sqrt(1.0F - v * v);
  }
};
/// Op acos; the gradient reads x.
struct Acos {
  [[nodiscard]] constexpr auto of(auto x) const { return std::acos(x); }
  [[nodiscard]] constexpr auto grad(auto v, auto dout) const {
    return -dout / std::sqrt(1.0F - v * v);
  }
};
/// Op atan; the gradient reads x.
struct Atan {
  [[nodiscard]] constexpr auto of(auto x) const { return std::atan(x); }
  [[nodiscard]] constexpr auto grad(auto v, auto dout) const { return dout / (1.0F + v * v); }
};
/// Op sinh; the gradient reads x.
struct Sinh {
  [[nodiscard]] constexpr auto of(auto x) const { return std::sinh(x); }
  [[nodiscard]] constexpr auto grad(auto v, auto dout) const { return dout * std::cosh(v); }
};
/// Op cosh; the gradient reads x.
struct Cosh {
  [[nodiscard]] constexpr auto of(auto x) const { return std::cosh(x); }
  [[nodiscard]] constexpr auto grad(auto v, auto dout) const { return dout * std::sinh(v); }
};
/// Op asinh; the gradient reads x.
struct Asinh {
  [[nodiscard]] constexpr auto of(auto x) const { return std::asinh(x); }
  [[nodiscard]] constexpr auto grad(auto v, auto dout) const {
    return dout / std::sqrt(v * v + 1.0F);
  }
};
/// Op acosh; the gradient reads x.
struct Acosh {
  [[nodiscard]] constexpr auto of(auto x) const { return std::acosh(x); }
  [[nodiscard]] constexpr auto grad(auto v, auto dout) const {
    return dout / std::sqrt(v * v - 1.0F);
  }
};
/// Op atanh; the gradient reads x.
struct Atanh {
  [[nodiscard]] constexpr auto of(auto x) const { return std::atanh(x); }
  [[nodiscard]] constexpr auto grad(auto v, auto dout) const { return dout / (1.0F - v * v); }
};

/// x to a fixed power.
struct Power {
  float exponent;  ///< of x
  [[nodiscard]] constexpr auto of(auto x) const {
    return exponent == 2.0F ? x * x : std::pow(x, exponent);
  }
  [[nodiscard]] constexpr auto grad(auto v, auto dout) const {
    return dout * exponent * (exponent == 2.0F ? v : std::pow(v, exponent - 1.0F));
  }
};
/// x limited to [low, high].
/// Ops clip and brelu; the gradient reads x.
struct Clip {
  float low;   ///< lower bound
  float high;  ///< upper bound
  [[nodiscard]] constexpr auto of(auto x) const { return between(x, low, high); }
  [[nodiscard]] constexpr auto grad(auto v, auto dout) const {
    return v > low && v < high ? dout : 0.0F;
  }
};
/// Op gelu with attribute approximate; the gradient reads x.
/// x times the normal distribution function at x, approximated by tanh.
struct GeluTanh {
  /// The argument of tanh.
  [[nodiscard]] constexpr auto inner(auto x) const {
    return like(x, 0.79788456080286535588) * (x + like(x, 0.044715) * x * x * x);
  }
  [[nodiscard]] constexpr auto of(auto x) const { return 0.5F * x * (1.0F + std::tanh(inner(x))); }
  [[nodiscard]] constexpr auto grad(auto v, auto dout) const {
    const auto t = std::tanh(inner(v));
    const auto slope = like(v, 0.79788456080286535588) * (1.0F + 3.0F * like(v, 0.044715) * v * v);
    return dout * 0.5F * (1.0F + t + v * (1.0F - t * t) * slope);
  }
};
/// Op sign.
struct Sign {
  [[nodiscard]] constexpr auto of(auto x) const {
    return x > 0.0F ? 1.0F : (x < 0.0F ? -1.0F : 0.0F);
  }
  [[nodiscard]] constexpr auto grad(auto /*v*/, auto /*dout*/) const { return 0.0F; }
};

/// A list of formulas.
template <typename... F>
struct Formulas {
  static constexpr int32_t kCount = sizeof...(F);  ///< formulas
};
/// Formulas of ops with one operand.
using UnaryFormulas =
    Formulas<Relu, Relu6, LeakyRelu, ThresholdedRelu, HardShrink, SoftShrink, HardSigmoid,
             HardSwish, Abs, Floor, Ceil, Round, Trunc, Sigmoid, LogSigmoid, Tanh, TanhShrink,
             ScaledTanh, SoftSign, Softplus, SoftRelu, Elu, Celu, Selu, Silu, Swish, Mish, Gelu,
             Erf, Exp, Expm1, Log, Log2, Log10, Log1p, Sqrt, Rsqrt, Square, Reciprocal, Sin, Cos,
             Tan, Asin, Acos, Atan, Sinh, Cosh, Asinh, Acosh, Atanh, Power, Clip, GeluTanh, Sign>;

/// y = f(x). y may be x.
template <typename Formula>
struct Unary {
  Formula formula;  ///< with its attributes
  const float* x;   ///< elements
  float* y;         ///< results
  constexpr void operator()(int64_t i) const { y[i] = formula.of(x[i]); }
};

/// dx from x or the result, and the gradient of the result. dx may be one of them.
template <typename Formula>
struct Gradient {
  Formula formula;    ///< with its attributes
  const float* v;     ///< null: not read
  const float* dout;  ///< gradient of the results
  float* dx;          ///< gradient of the elements
  constexpr void operator()(int64_t i) const {
    dx[i] = formula.grad(v == nullptr ? 0.0F : v[i], dout[i]);
  }
};

}  // namespace millrace::gpu
