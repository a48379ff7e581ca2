#pragma once

#include <cmath>
#include <cstdint>

// Functors of ops on the channels of float images [outer, channels, inner].
namespace millrace::gpu {

/// Dims of such images; inner is 1 for images with the channels last.
struct ChannelDims {
  int64_t channels;  ///< of an image
  int64_t inner;     ///< distance of adjacent channels
  /// The channel of element i.
  [[nodiscard]] constexpr int64_t of(int64_t i) const { return i / inner % channels; }
};

/// Op prelu: elements that are not above 0 are multiplied by a slope.
struct Prelu {
  static constexpr bool kReads = true;
  static constexpr float of(float x, float slope) { return x > 0.0F ? x : slope * x; }
  static constexpr float grad_x(float x, float slope, float dout) {
    return x > 0.0F ? dout : slope * dout;
  }
  static constexpr float grad_y(float x, float /*slope*/, float dout) {
    return x > 0.0F ? 0.0F : x * dout;
  }
};

/// y[i] = x[i] * scale + bias of its channel. y may be x.
struct ScaleChannels {
  ChannelDims dims;    ///< of x
  const float* x;      ///< images
  const float* scale;  ///< by channel
  const float* bias;   ///< by channel
  float* y;            ///< with the dims of x
  constexpr void operator()(int64_t i) const {
    const int64_t c = dims.of(i);
    y[i] = x[i] * scale[c] + bias[c];
  }
};

/// Op lrn: element i divided by a power of the sum of squares over adjacent channels.
struct NormalizeResponse {
  ChannelDims dims;  ///< of x
  const float* x;    ///< images
  float* y;          ///< with the dims of x
  float* sums;       ///< k + alpha * sum of squares; null: not wanted
  int64_t half;      ///< channels on each side that are added
  float k;           ///< start of the sum
  float alpha;       ///< factor of the squares
  float beta;        ///< the power
  constexpr void operator()(int64_t i) const {
    const int64_t c = dims.of(i);
    auto sum = static_cast<double>(k);
    for (int64_t d = c < half ? -c : -half; d <= half && c + d < dims.channels; ++d) {
      const auto value = static_cast<double>(x[i + d * dims.inner]);
      sum += static_cast<double>(alpha) * value * value;
    }
    const auto total = static_cast<float>(sum);
    if (sums != nullptr) sums[i] = total;
    y[i] = x[i] * std::pow(total, -beta);
  }
};

/// Its gradient.
struct NormalizeResponseBack {
  ChannelDims dims;   ///< of all images
  const float* x;     ///< images
  const float* y;     ///< result
  const float* sums;  ///< by NormalizeResponse
  const float* dy;    ///< gradient of the result
  float* dx;          ///< gradient of x
  int64_t half;       ///< channels on each side that are added
  float alpha;        ///< factor of the squares
  float beta;         ///< the power
  constexpr void operator()(int64_t i) const {
    const int64_t c = dims.of(i);
    double sum = 0;
    for (int64_t d = c < half ? -c : -half; d <= half && c + d < dims.channels; ++d) {
      const int64_t at = i + d * dims.inner;
      sum +=
          static_cast<double>(y[at]) * static_cast<double>(dy[at]) / static_cast<double>(sums[at]);
    }
    const double ratio = -2.0 * static_cast<double>(alpha) * static_cast<double>(beta);
    dx[i] = static_cast<float>(static_cast<double>(dy[i] * std::pow(sums[i], -beta)) +
                               ratio * static_cast<double>(x[i]) * sum);
  }
};

/// Op maxout: the largest of `groups` elements that are `inner` apart. As a gradient, the first of
/// them that equals the result gets the gradient of the result, the others 0.
struct LargestOfChannels {
  int64_t groups;   ///< elements of each result
  int64_t inner;    ///< distance of the elements
  const float* x;   ///< [outer, groups, inner]
  float* y;         ///< [outer, inner]; only read for the gradient
  const float* dy;  ///< gradient of y; null: y is computed
  float* dx;        ///< gradient of x
  constexpr void operator()(int64_t i) const {
    const int64_t first = i / inner * groups * inner + i % inner;
    float most = dy != nullptr ? y[i] : x[first];
    bool taken = false;
    for (int64_t g = 0; g < groups; ++g) {
      const int64_t at = first + g * inner;
      if (dy == nullptr) {
        most = x[at] > most ? x[at] : most;
        continue;
      }
      const bool hit = !taken && x[at] == most;
      dx[at] = hit ? dy[i] : 0.0F;
      taken = taken || hit;
    }
    if (dy == nullptr) y[i] = most;
  }
};

}  // namespace millrace::gpu
