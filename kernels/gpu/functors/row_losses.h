#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "kernels/gpu/functors/loss.h"
#include "kernels/gpu/functors/walk.h"

// Losses over rows whose classes may be apart, with hard or soft labels.
namespace millrace::gpu {

/// Labels of rows along any dim: [outer, classes, inner]. Exactly one of hard.labels and soft is
/// not null.
struct RowLabels {
  Labels hard;        ///< class of each [outer, inner]
  const float* soft;  ///< weight of each [outer, classes, inner]
  int64_t inner;      ///< distance of the classes of a row
  /// Position of class 0 of a row.
  [[nodiscard]] constexpr int64_t start(int64_t row) const {
    return row / inner * hard.classes * inner + row % inner;
  }
};

/// -log of a probability, limited as in the original.
constexpr float entropy_of(float probability) {
  const float loss = -std::log(probability);
  if (loss < -1e20F) return -1e20F;
  return loss > 1e20F ? 1e20F : loss;
}

/// Softmax of rows and the loss of their labels; labels that are no class give NaN.
struct SoftmaxEntropyAlong {
  RowLabels labels;
  const float* logits;
  float* softmax;  ///< may be logits
  float* loss;     ///< one for each row
  template <typename Team>
  constexpr void operator()(const Team& team, int64_t row) const {
    const int64_t start = labels.start(row);
    const int64_t step = labels.inner;
    const int64_t classes = labels.hard.classes;
    const float* const from = logits + start;
    const float most = largest_of_row(team, from, classes, step);
    double part = 0;
    double weights = 0;
    double losses = 0;
    for (int64_t c = team.rank(); c < classes; c += team.size()) {
      const float x = from[c * step];
      part += static_cast<double>(std::exp(x - most));
      if (labels.soft == nullptr) continue;
      const float weight = labels.soft[start + c * step];
      weights += static_cast<double>(weight);
      losses += static_cast<double>(weight * (most - x));
    }
    const double sum = team.sum(part);
    const double weight = team.sum(weights);
    double value = team.sum(losses);
    if (labels.soft != nullptr) {
      value += std::log(sum) * weight;
    } else if (!labels.hard.is_ignored(row)) {
      value = std::numeric_limits<double>::quiet_NaN();
      if (labels.hard.is_good(row))
        value = static_cast<double>(most - from[labels.hard.labels[row] * step]) + std::log(sum);
    }
    if (team.rank() == 0) loss[row] = static_cast<float>(value);
    // A barrier: no thread writes softmax before the loss has been read from the logits.
    team.max(0.0F);
    const auto inverse = static_cast<float>(1.0 / sum);
    for (int64_t c = team.rank(); c < classes; c += team.size())
      softmax[start + c * step] = std::exp(from[c * step] - most) * inverse;
  }
};

/// Element i of the gradient of the logits.
struct SoftmaxEntropyAlongGradient {
  RowLabels labels;
  const float* softmax;  ///< result of SoftmaxEntropyAlong
  const float* dloss;    ///< one for each row
  float* dlogits;        ///< may be softmax
  Divider inner;         ///< RowLabels::inner
  Divider classes;       ///< RowLabels::hard.classes
  constexpr void operator()(int64_t i) const {
    const auto above = static_cast<int64_t>(inner.quotient(static_cast<uint32_t>(i)));
    const auto outer = static_cast<int64_t>(classes.quotient(static_cast<uint32_t>(above)));
    const int64_t c = above - outer * classes.divisor;
    const int64_t row = outer * inner.divisor + (i - above * inner.divisor);
    if (labels.soft != nullptr) {
      dlogits[i] = (softmax[i] - labels.soft[i]) * dloss[row];
      return;
    }
    float grad = 0.0F;
    if (!labels.hard.is_ignored(row)) {
      const float hit = labels.hard.labels[row] == c ? 1.0F : 0.0F;
      grad = labels.hard.is_good(row) ? (softmax[i] - hit) * dloss[row]
                                      : std::numeric_limits<float>::quiet_NaN();
    }
    dlogits[i] = grad;
  }
};

/// y[row] = sum of soft labels times the entropy of the probabilities.
struct SoftEntropy {
  const float* x;      ///< [rows, classes]
  const float* label;  ///< [rows, classes]
  float* y;            ///< [rows]
  int64_t classes;     ///< columns
  template <typename Team>
  constexpr void operator()(const Team& team, int64_t row) const {
    double part = 0;
    for (int64_t i = row * classes + team.rank(); i < (row + 1) * classes; i += team.size())
      part += static_cast<double>(label[i] * entropy_of(x[i]));
    const double sum = team.sum(part);
    if (team.rank() == 0) y[row] = static_cast<float>(sum);
  }
};

/// Element i of its gradient.
struct SoftEntropyGradient {
  const float* x;      ///< as in SoftEntropy
  const float* label;  ///< as in SoftEntropy
  const float* dy;     ///< [rows]
  float* dx;           ///< [rows, classes]
  Divider classes;     ///< columns
  constexpr void operator()(int64_t i) const {
    dx[i] = -label[i] / x[i] * dy[classes.quotient(static_cast<uint32_t>(i))];
  }
};

/// cross_entropy2: as Entropy, and the probability of the label.
struct MatchEntropy {
  Labels labels;
  const float* x;  ///< [rows, classes]
  float* y;        ///< [rows]: losses
  float* match;    ///< [rows]: probabilities; null: not wanted
  constexpr void operator()(int64_t row) const {
    float p = 0.0F;
    float loss = 0.0F;
    if (!labels.is_ignored(row)) {
      p = labels.is_good(row) ? x[row * labels.classes + labels.labels[row]]
                              : std::numeric_limits<float>::quiet_NaN();
      loss = labels.is_good(row) ? entropy_of(p) : p;
    }
    y[row] = loss;
    if (match != nullptr) match[row] = p;
  }
};

/// Element i of its gradient.
struct MatchEntropyGradient {
  Labels labels;
  const float* match;  ///< [rows]
  const float* dy;     ///< [rows]
  float* dx;           ///< [rows, classes]
  Divider classes;     ///< columns
  constexpr void operator()(int64_t i) const {
    const auto row = static_cast<int64_t>(classes.quotient(static_cast<uint32_t>(i)));
    float grad = 0.0F;
    if (!labels.is_ignored(row)) {
      if (!labels.is_good(row)) grad = std::numeric_limits<float>::quiet_NaN();
      if (labels.labels[row] == i - row * classes.divisor) grad = -dy[row] / match[row];
    }
    dx[i] = grad;
  }
};

/// smooth_l1_loss: weights are null where there are none.
struct SmoothRow {
  const float* x;        ///< [rows, width]
  const float* y;        ///< [rows, width]
  const float* inside;   ///< weights of the differences
  const float* outside;  ///< weights of the losses
  float* difference;     ///< [rows, width]; null: not wanted
  float* out;            ///< [rows]
  int64_t width;         ///< columns
  float square;          ///< sigma squared
  template <typename Team>
  constexpr void operator()(const Team& team, int64_t row) const {
    double part = 0;
    for (int64_t i = row * width + team.rank(); i < (row + 1) * width; i += team.size()) {
      const float d = (x[i] - y[i]) * (inside == nullptr ? 1.0F : inside[i]);
      const float size = std::abs(d);
      const float e = size < 1.0F / square ? 0.5F * square * d * d : size - 0.5F / square;
      part += static_cast<double>(e * (outside == nullptr ? 1.0F : outside[i]));
      if (difference != nullptr) difference[i] = d;
    }
    const double sum = team.sum(part);
    if (team.rank() == 0) out[row] = static_cast<float>(sum);
  }
};

/// Element i of its gradients.
struct SmoothRowGradient {
  const float* difference;  ///< result of SmoothRow
  const float* inside;      ///< as in SmoothRow
  const float* outside;     ///< as in SmoothRow
  const float* dout;        ///< [rows]
  float* dx;                ///< null: not wanted
  float* dy;                ///< null: not wanted
  Divider width;            ///< columns
  float square;             ///< sigma squared
  constexpr void operator()(int64_t i) const {
    const float d = difference[i];
    float slope = std::abs(d) < 1.0F / square ? square * d : std::copysign(1.0F, d);
    slope *= dout[width.quotient(static_cast<uint32_t>(i))];
    if (inside != nullptr) slope *= inside[i];
    if (outside != nullptr) slope *= outside[i];
    if (dx != nullptr) dx[i] = slope;
    if (dy != nullptr) dy[i] = -slope;
  }
};

}  // namespace millrace::gpu
