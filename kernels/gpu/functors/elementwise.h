#pragma once

#include <cmath>
#include <cstdint>

namespace millrace::gpu {

/// y[i] = value.
struct Fill {
  float* y;
  float value;
  constexpr void operator()(int64_t i) const { y[i] = value; }
};

/// y[i] = factor * *from.
struct FillFrom {
  const float* from;
  float* y;
  float factor;
  constexpr void operator()(int64_t i) const { y[i] = factor * *from; }
};

/// y = factor * x + bias, or factor * (x + bias).
struct Scale {
  const float* x;
  float* y;
  float factor;
  float bias;
  bool bias_after;
  constexpr void operator()(int64_t i) const {
    y[i] = bias_after ? factor * x[i] + bias : factor * (x[i] + bias);
  }
};

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
  int64_t middle;
  int64_t inner;
  bool alike;  ///< x and y have the same dims
  constexpr void operator()(int64_t i) const {
    out[i] = Formula::of(x[i], y[alike ? i : i / inner % middle]);
  }
};

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
