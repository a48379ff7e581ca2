#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "kernels/gpu/functors/rows.h"

// Functors of losses over rows of class scores, f32. Row r has the elements [r * classes, (r + 1) *
// classes) of x, logits and softmax.
namespace millrace::gpu {

/// Class labels of rows. A label out of range gives NaN, as loss and as gradient of its row, so
/// that training does not continue as if nothing had happened: a device cannot report an error
/// directly.
struct Labels {
  const int64_t* labels;  ///< one per row
  int64_t classes;        ///< columns of each row
  int64_t ignored;        ///< rows with this label are ignored
  /// True for a row that has neither a loss nor a gradient.
  [[nodiscard]] constexpr bool is_ignored(int64_t row) const { return labels[row] == ignored; }
  /// True if the label of the row is a class. To be asked of rows that are not ignored only: the
  /// ignored label may be any number.
  [[nodiscard]] constexpr bool is_good(int64_t row) const {
    return labels[row] >= 0 && labels[row] < classes;
  }
};

/// y[row] = -log(x[row, label]), at most 1e20.
struct Entropy {
  Labels labels;
  const float* x;  ///< [rows, classes]: probabilities
  float* y;        ///< [rows]
  template <typename Team>
  constexpr void operator()(const Team& team, int64_t row) const {
    if (team.rank() != 0) return;
    if (labels.is_ignored(row)) {
      y[row] = 0.0F;
      return;
    }
    float loss = std::numeric_limits<float>::quiet_NaN();
    if (labels.is_good(row)) loss = -std::log(x[row * labels.classes + labels.labels[row]]);
    y[row] = loss > 1e20F ? 1e20F : loss;
  }
};

/// Element i of the gradient of Entropy: -dy / x at the label, else 0; in ignored rows 0
/// everywhere, and in rows whose label is no class NaN everywhere.
struct EntropyGradient {
  Labels labels;
  const float* x;   ///< as in Entropy
  const float* dy;  ///< [rows]: gradient of the losses
  float* dx;        ///< [rows, classes]
  constexpr void operator()(int64_t i) const {
    const int64_t row = i / labels.classes;
    float grad = 0.0F;
    if (!labels.is_ignored(row)) {
      if (!labels.is_good(row)) grad = std::numeric_limits<float>::quiet_NaN();
      if (labels.labels[row] == i % labels.classes) grad = -dy[row] / x[i];
    }
    dx[i] = grad;
  }
};

/// Softmax of a row of logits and the loss of its label, without overflow.
struct SoftmaxEntropy {
  Labels labels;
  const float* logits;  ///< [rows, classes]
  float* softmax;       ///< [rows, classes]; may be logits
  float* loss;          ///< [rows]
  template <typename Team>
  constexpr void operator()(const Team& team, int64_t row) const {
    const int64_t columns = labels.classes;
    const float* const from = logits + row * columns;
    float* const to = softmax + row * columns;
    // the largest logit is subtracted, so that no exponential is above 1
    const float most = largest_of_row(team, from, columns);
    // sums are kept in double, so that their order, which depends on the team, hardly matters
    double part = 0;
    for (int64_t c = team.rank(); c < columns; c += team.size())
      part += static_cast<double>(std::exp(from[c] - most));
    const double sum = team.sum(part);
    // before softmax is written, which may share memory with the logits
    if (team.rank() == 0) {
      float value = 0.0F;
      if (!labels.is_ignored(row)) {
        value = labels.is_good(row)
                    ? most - from[labels.labels[row]] + std::log(static_cast<float>(sum))
                    : std::numeric_limits<float>::quiet_NaN();
      }
      loss[row] = value;
    }
    // A barrier: no thread writes softmax before the loss has been read from the logits.
    team.max(0.0F);
    const float inverse = static_cast<float>(1.0 / sum);
    for (int64_t c = team.rank(); c < columns; c += team.size())
      to[c] = std::exp(from[c] - most) * inverse;
  }
};

/// Element i of the gradient of the logits: (softmax - 1 at the label) * dloss; in ignored rows 0,
/// and in rows whose label is no class NaN. dlogits may be softmax.
struct SoftmaxEntropyGradient {
  Labels labels;
  const float* softmax;  ///< [rows, classes]: result of SoftmaxEntropy
  const float* dloss;    ///< [rows]
  float* dlogits;        ///< [rows, classes]
  constexpr void operator()(int64_t i) const {
    const int64_t row = i / labels.classes;
    float grad = 0.0F;
    if (!labels.is_ignored(row)) {
      const float hit = labels.labels[row] == i % labels.classes ? 1.0F : 0.0F;
      grad = labels.is_good(row) ? (softmax[i] - hit) * dloss[row]
                                 : std::numeric_limits<float>::quiet_NaN();
    }
    dlogits[i] = grad;
  }
};

/// -label * log(x + epsilon) - (1 - label) * log(1 - x + epsilon).
struct LogLoss {
  float epsilon;  ///< added inside the logarithms
  [[nodiscard]] constexpr float of(float x, float label) const {
    return -(label * std::log(x + epsilon)) - (1.0F - label) * std::log(1.0F - x + epsilon);
  }
  [[nodiscard]] constexpr float grad(float x, float label, float dout) const {
    return dout * ((1.0F - label) / (1.0F - x + epsilon) - label / (x + epsilon));
  }
};

/// Cross entropy of the logistic function of x; 0 for one label.
struct LogisticLoss {
  float ignored;  ///< label whose elements do not count
  [[nodiscard]] constexpr bool counts(float label) const {
    return std::abs(label - ignored) > 1e-5F;
  }
  [[nodiscard]] constexpr float of(float x, float label) const {
    const float tail = std::log1p(std::exp(-std::abs(x)));
    return counts(label) ? (x > 0.0F ? x : 0.0F) - x * label + tail : 0.0F;
  }
  [[nodiscard]] constexpr float grad(float x, float label, float dout) const {
    return counts(label) ? (1.0F / (1.0F + std::exp(-x)) - label) * dout : 0.0F;
  }
};

/// y[i] from x[i] and label[i]. y may be x.
template <typename Formula>
struct PointLoss {
  Formula formula;     ///< loss of one element
  const float* x;      ///< predictions
  const float* label;  ///< one for each prediction
  float* y;            ///< losses
  constexpr void operator()(int64_t i) const { y[i] = formula.of(x[i], label[i]); }
};
/// Its gradient by x. dx may be dy.
template <typename Formula>
struct PointLossGradient {
  Formula formula;     ///< loss of one element
  const float* x;      ///< predictions
  const float* label;  ///< one for each prediction
  const float* dy;     ///< gradient of the losses
  float* dx;           ///< gradient of the predictions
  constexpr void operator()(int64_t i) const { dx[i] = formula.grad(x[i], label[i], dy[i]); }
};

}  // namespace millrace::gpu
