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

/// y = sum of x. y may be x[0].
struct SumOfMany {
  static constexpr int32_t kMost = 16;  ///< operands of one call
  const float* x[kMost];
  float* y;
  int32_t count;
  constexpr void operator()(int64_t i) const {
    float sum = x[0][i];
    for (int32_t k = 1; k < count; ++k) sum += x[k][i];
    y[i] = sum;
  }
};

/// y[i] is true where x[i] is false, for bytes of 0 or 1.
struct Not {
  const uint8_t* x;  ///< elements
  uint8_t* y;        ///< results
  constexpr void operator()(int64_t i) const { y[i] = x[i] == 0 ? 1 : 0; }
};

}  // namespace millrace::gpu
