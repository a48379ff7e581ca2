#pragma once

#include <cmath>
#include <cstdint>

namespace millrace::gpu {

/// What follows a convolution in a fused op: bias, batch normalization with given statistics,
/// another image, and a rectifier. Call number i computes element i. y may be conv or residual.
struct FinishConv {
  enum class Rectifier : int32_t { kNone, kRelu, kRelu6, kLeakyRelu };

  const float* conv;      ///< [batch, channels, inner]
  float* y;               ///< the same dims
  uint32_t channels;      ///< the count of elements must be below 2^32
  uint32_t inner;         ///< pixels of one channel of one image
  const float* bias;      ///< one per channel; null: 0
  const float* scale;     ///< of the normalization, one per channel; null: 1
  const float* shift;     ///< null: 0
  const float* mean;      ///< null: there is no normalization
  const float* variance;  ///< not null if mean is not
  float epsilon;          ///< added to the variance
  const float* residual;  ///< the dims of y; null: 0
  Rectifier rectifier;
  float alpha;  ///< slope of leaky_relu, threshold of relu6

  constexpr void operator()(int64_t i) const {
    const uint32_t c = static_cast<uint32_t>(i) / inner % channels;
    float value = conv[i] + (bias == nullptr ? 0.0F : bias[c]);
    if (mean != nullptr) {
      const float factor = (scale == nullptr ? 1.0F : scale[c]) / std::sqrt(variance[c] + epsilon);
      value = (value - mean[c]) * factor + (shift == nullptr ? 0.0F : shift[c]);
    }
    if (residual != nullptr) value += residual[i];
    y[i] = rectified(value);
  }

  // kRelu makes 0 of NaN, as the op relu; the others keep it.
  [[nodiscard]] constexpr float rectified(float x) const {
    if (rectifier == Rectifier::kNone) return x;
    if (rectifier == Rectifier::kLeakyRelu) return x < 0.0F ? x * alpha : x;
    if (rectifier == Rectifier::kRelu) return x > 0.0F ? x : 0.0F;
    const float positive = x < 0.0F ? 0.0F : x;
    return positive > alpha ? alpha : positive;
  }
};

}  // namespace millrace::gpu
