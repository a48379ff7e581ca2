#pragma once

#include <cmath>
#include <cstdint>

// Functors of elementwise ops on f32. Call number i computes element i only, so operands may share
// memory where this is said, and results do not depend on the order of the calls.
namespace millrace::gpu {

/// y[i] = value.
struct Fill {
  float* y;  ///< device memory, like all pointers of functors
  float value;
  constexpr void operator()(int64_t i) const { y[i] = value; }
};

/// y[i] = factor * *from.
struct FillFrom {
  const float* from;
  float* y;
  float factor;  ///< 1 copies
  constexpr void operator()(int64_t i) const { y[i] = factor * *from; }
};

/// y = factor * x + bias, or factor * (x + bias).
struct Scale {
  const float* x;
  float* y;
  float factor;
  float bias;
  bool bias_after;  ///< false: the bias is added before the product
  constexpr void operator()(int64_t i) const {
    y[i] = bias_after ? factor * x[i] + bias : factor * (x[i] + bias);
  }
};

/// Formulas of Binary: of(element of x, element of y).
struct Add {
  static constexpr float of(float x, float y) { return x + y; }
};
struct Subtract {
  static constexpr float of(float x, float y) { return x - y; }
};
struct Multiply {
  static constexpr float of(float x, float y) { return x * y; }
};
struct Divide {
  static constexpr float of(float x, float y) { return x / y; }
};

/// out = x op y. The dims of out are [outer, middle, inner], those of y [middle]. out may be x.
template <typename Formula>
struct Binary {
  const float* x;
  const float* y;
  float* out;
  int64_t middle;  ///< extent of the dims that y has
  int64_t inner;   ///< elements of out for one element of y
  bool alike;      ///< x and y have the same dims
  constexpr void operator()(int64_t i) const {
    out[i] = Formula::of(x[i], y[alike ? i : i / inner % middle]);
  }
};

/// Formulas of Unary: of(element of x).
struct Relu {
  static constexpr float of(float x) { return x < 0.0F ? 0.0F : x; }  // NaN is kept
};
struct Sigmoid {
  static constexpr float of(float x) { return 1.0F / (1.0F + std::exp(-x)); }
};
struct Tanh {
  static constexpr float of(float x) { return std::tanh(x); }
};
struct Sqrt {
  static constexpr float of(float x) { return std::sqrt(x); }
};
struct Square {
  static constexpr float of(float x) { return x * x; }
};

/// y = f(x). y may be x.
template <typename Formula>
struct Unary {
  const float* x;
  float* y;
  constexpr void operator()(int64_t i) const { y[i] = Formula::of(x[i]); }
};

/// Formulas of Gradient: of(element of the forward result, gradient of that element).
struct ReluGradient {
  static constexpr float of(float out, float dout) { return out > 0.0F ? dout : 0.0F; }
};
struct SigmoidGradient {
  static constexpr float of(float out, float dout) { return dout * (1.0F - out) * out; }
};
struct TanhGradient {
  static constexpr float of(float out, float dout) { return dout * (1.0F - out * out); }
};

/// Computed from x instead of the result.
struct SquareGradient {
  static constexpr float of(float x, float dout) { return 2.0F * x * dout; }
};

/// dx from the result of the forward op and its gradient. dx may be dout.
template <typename Formula>
struct Gradient {
  const float* out;
  const float* dout;
  float* dx;
  constexpr void operator()(int64_t i) const { dx[i] = Formula::of(out[i], dout[i]); }
};

}  // namespace millrace::gpu
