#pragma once

#include <cmath>
#include <cstdint>

// Functors of normalizations of float images by groups of channels of one image, and by single
// channels of one image, with the channels first. Sums are kept in double.
namespace millrace::gpu {

/// Images [batch, groups, channels, inner]; each group of each image is normalized.
struct NormGroups {
  int64_t batch;     ///< images
  int64_t groups;    ///< of an image
  int64_t channels;  ///< of a group
  int64_t inner;     ///< pixels of a channel
  /// Elements of a group, which are side by side.
  [[nodiscard]] constexpr int64_t width() const { return channels * inner; }
};

/// One group of one image.
struct GroupNorm {
  NormGroups of;         ///< dims of x and y
  const float* x;        ///< images
  const float* scale;    ///< by channel of an image; null: 1
  const float* bias;     ///< by channel of an image; null: 0
  float* y;              ///< may be x
  float* mean;           ///< [batch, groups]; null: not wanted
  float* variance;       ///< [batch, groups]; null: not wanted
  float epsilon;         ///< added to the variance
  bool saves_deviation;  ///< 1 / sqrt(variance + epsilon) in place of the variance
  /// The square of a number. Op group_norm rounds it to f32, as on the processor and in the
  /// original: the variance of a few nearly equal elements is what that leaves.
  [[nodiscard]] constexpr double square_of(double v) const {
    return saves_deviation ? v * v : static_cast<double>(static_cast<float>(v * v));
  }
  /// The variance, from the means of elements and of squares.
  [[nodiscard]] constexpr double variance_of(double middle, double squares) const {
    const double raw = saves_deviation
                           ? squares - middle * middle
                           : static_cast<double>(static_cast<float>(squares)) -
                                 square_of(static_cast<double>(static_cast<float>(middle)));
    return raw < 0 ? 0 : raw;  // NaN is kept
  }
  template <typename Team>
  constexpr void operator()(const Team& team, int64_t row) const {
    const int64_t width = of.width();
    const float* const from = x + row * width;
    double plain = 0;
    double squares = 0;
    for (int64_t i = team.rank(); i < width; i += team.size()) {
      plain += static_cast<double>(from[i]);
      squares += square_of(static_cast<double>(from[i]));
    }
    const double share = 1.0 / static_cast<double>(width);
    const double middle = team.sum(plain) * share;
    const double spread = variance_of(middle, team.sum(squares) * share);
    const auto m = static_cast<float>(middle);
    const auto deviation =
        static_cast<float>(1.0 / std::sqrt(spread + static_cast<double>(epsilon)));
    const int64_t first = row % of.groups * of.channels;
    for (int64_t i = team.rank(); i < width; i += team.size()) {
      const int64_t c = first + i / of.inner;
      const float factor = scale == nullptr ? deviation : deviation * scale[c];
      y[row * width + i] = (from[i] - m) * factor + (bias == nullptr ? 0.0F : bias[c]);
    }
    if (team.rank() != 0) return;
    if (mean != nullptr) mean[row] = m;
    if (variance != nullptr)
      variance[row] = saves_deviation ? deviation : static_cast<float>(spread);
  }
};

/// What both steps of the gradient read.
struct GroupNormGradient {
  NormGroups of;          ///< dims of x and dy
  const float* x;         ///< images
  const float* dy;        ///< gradient of the result
  const float* mean;      ///< [batch, groups]
  const float* variance;  ///< [batch, groups]; see saves_deviation
  float epsilon;          ///< added to the variance
  bool saves_deviation;   ///< of GroupNorm
  /// 1 / sqrt(variance + epsilon) of a group of an image.
  [[nodiscard]] constexpr float deviation(int64_t group) const {
    return saves_deviation ? variance[group] : 1.0F / std::sqrt(variance[group] + epsilon);
  }
};

/// sums[row] = {sum of dy, sum of dy times the normalized x} of a channel of an image.
struct GroupNormSums {
  GroupNormGradient g;  ///< operands
  double* sums;         ///< [batch, groups * channels, 2]
  template <typename Team>
  constexpr void operator()(const Team& team, int64_t row) const {
    const int64_t group = row / g.of.channels;
    const float m = g.mean[group];
    double plain = 0;
    double times = 0;
    for (int64_t i = team.rank(); i < g.of.inner; i += team.size()) {
      const int64_t at = row * g.of.inner + i;
      plain += static_cast<double>(g.dy[at]);
      times += static_cast<double>(g.dy[at]) * static_cast<double>(g.x[at] - m);
    }
    plain = team.sum(plain);
    times = team.sum(times);
    if (team.rank() != 0) return;
    sums[row * 2] = plain;
    sums[row * 2 + 1] = times * static_cast<double>(g.deviation(group));
  }
};

/// The gradient of one group of one image, after GroupNormSums.
struct GroupNormBackward {
  GroupNormGradient g;  ///< operands
  const double* sums;   ///< by GroupNormSums
  const float* scale;   ///< by channel; null: 1
  float* dx;            ///< may be dy
  bool shifts;          ///< the mean of dy is subtracted
  template <typename Team>
  constexpr void operator()(const Team& team, int64_t row) const {
    const int64_t first = row % g.of.groups * g.of.channels;
    double total = 0;
    double along = 0;
    for (int64_t c = team.rank(); c < g.of.channels; c += team.size()) {
      const double factor = scale == nullptr ? 1.0 : static_cast<double>(scale[first + c]);
      total += sums[(row * g.of.channels + c) * 2] * factor;
      along += sums[(row * g.of.channels + c) * 2 + 1] * factor;
    }
    const double share = 1.0 / static_cast<double>(g.of.width());
    const auto shift = static_cast<float>(team.sum(total) * share);
    const float deviation = g.deviation(row);
    const float tilt = static_cast<float>(team.sum(along) * share) * deviation;
    const float m = g.mean[row];
    for (int64_t i = team.rank(); i < g.of.width(); i += team.size()) {
      const int64_t at = row * g.of.width() + i;
      const float factor = scale == nullptr ? 1.0F : scale[first + i / g.of.inner];
      dx[at] = deviation * (g.dy[at] * factor - (shifts ? shift : 0.0F) - (g.x[at] - m) * tilt);
    }
  }
};

/// Gradients of scale and bias of channel c, summed over the images. Runs after GroupNormSums;
/// images are few, so one thread adds them.
struct GroupNormVectors {
  const double* sums;  ///< by GroupNormSums
  float* dscale;       ///< null: not wanted
  float* dbias;        ///< null: not wanted
  int64_t batch;       ///< images
  int64_t channels;    ///< of an image
  constexpr void operator()(int64_t c) const {
    double plain = 0;
    double times = 0;
    for (int64_t n = 0; n < batch; ++n) {
      plain += sums[(n * channels + c) * 2];
      times += sums[(n * channels + c) * 2 + 1];
    }
    if (dscale != nullptr) dscale[c] = static_cast<float>(times);
    if (dbias != nullptr) dbias[c] = static_cast<float>(plain);
  }
};

}  // namespace millrace::gpu
