#pragma once

#include <cmath>
#include <cstdint>

// Functors of normalization by row on f32. Sums are kept in double, so that their order hardly
// matters.
namespace millrace::gpu {

/// y = (x - mean) / sqrt(variance + epsilon) * scale + bias for one row. y may be x.
struct LayerNorm {
  const float* x;      ///< [rows, width]
  const float* scale;  ///< [width]; null: 1
  const float* bias;   ///< [width]; null: 0
  float* y;            ///< [rows, width]
  float* mean;         ///< [rows]; null: not wanted
  float* variance;     ///< [rows]; null: not wanted
  int64_t width;       ///< elements of a row
  float epsilon;       ///< added to the variance
  template <typename Team>
  constexpr void operator()(const Team& team, int64_t row) const {
    const float* const from = x + row * width;
    float* const to = y + row * width;
    double part = 0;
    for (int64_t i = team.rank(); i < width; i += team.size()) part += static_cast<double>(from[i]);
    const double middle = team.sum(part) / static_cast<double>(width);
    part = 0;
    for (int64_t i = team.rank(); i < width; i += team.size()) {
      const double away = static_cast<double>(from[i]) - middle;
      part += away * away;
    }
    const double spread = team.sum(part) / static_cast<double>(width);
    const auto m = static_cast<float>(middle);
    const auto deviation =
        static_cast<float>(1.0 / std::sqrt(spread + static_cast<double>(epsilon)));
    for (int64_t i = team.rank(); i < width; i += team.size()) {
      const float factor = scale == nullptr ? deviation : deviation * scale[i];
      to[i] = (from[i] - m) * factor + (bias == nullptr ? 0.0F : bias[i]);
    }
    if (team.rank() != 0) return;
    if (mean != nullptr) mean[row] = m;
    if (variance != nullptr) variance[row] = static_cast<float>(spread);
  }
};

/// Gradient of x for one row. dx may be dy.
struct LayerNormBackward {
  const float* x;         ///< [rows, width]
  const float* dy;        ///< [rows, width]
  const float* scale;     ///< [width]; null: 1
  const float* mean;      ///< [rows]
  const float* variance;  ///< [rows]
  float* dx;              ///< [rows, width]
  int64_t width;          ///< elements of a row
  float epsilon;          ///< added to the variance
  template <typename Team>
  constexpr void operator()(const Team& team, int64_t row) const {
    const float* const from = x + row * width;
    const float* const grad = dy + row * width;
    const float m = mean[row];
    const float deviation = 1.0F / std::sqrt(variance[row] + epsilon);
    double sum = 0;
    double tilt = 0;
    for (int64_t i = team.rank(); i < width; i += team.size()) {
      const auto slope = static_cast<double>(scale == nullptr ? grad[i] : grad[i] * scale[i]);
      sum += slope;
      tilt += slope * static_cast<double>(from[i] - m);
    }
    const double share = 1.0 / static_cast<double>(width);
    const auto total = static_cast<float>(team.sum(sum) * share);
    const auto slant = static_cast<float>(team.sum(tilt) * share) * deviation * deviation;
    float* const to = dx + row * width;
    for (int64_t i = team.rank(); i < width; i += team.size()) {
      const float slope = scale == nullptr ? grad[i] : grad[i] * scale[i];
      to[i] = deviation * (slope - total - (from[i] - m) * slant);
    }
  }
};

/// Gradients of scale and bias for one column: adjacent columns are side by side.
struct LayerNormSums {
  const float* x;         ///< [rows, width]
  const float* dy;        ///< [rows, width]
  const float* mean;      ///< [rows]
  const float* variance;  ///< [rows]
  float* dscale;          ///< [width]; null: not wanted
  float* dbias;           ///< [width]; null: not wanted
  int64_t rows;           ///< number of rows
  int64_t width;          ///< elements of a row
  float epsilon;          ///< added to the variance
  template <typename Team>
  constexpr void operator()(const Team& team, int64_t column) const {
    double scaled = 0;
    double sum = 0;
    for (int64_t r = team.rank(); r < rows; r += team.size()) {
      const float g = dy[r * width + column];
      const float deviation = 1.0F / std::sqrt(variance[r] + epsilon);
      scaled += static_cast<double>(g * (x[r * width + column] - mean[r]) * deviation);
      sum += static_cast<double>(g);
    }
    scaled = team.sum(scaled);
    sum = team.sum(sum);
    if (team.rank() != 0) return;
    if (dscale != nullptr) dscale[column] = static_cast<float>(scaled);
    if (dbias != nullptr) dbias[column] = static_cast<float>(sum);
  }
};

}  // namespace millrace::gpu
