#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

namespace millrace::gpu {

/// Class labels of rows. A label out of range gives NaN, which the next NaN check detects: a device
/// cannot report an error directly.
struct Labels {
  const int64_t* labels;
  int64_t classes;
  int64_t ignored;  ///< rows with this label are ignored
  [[nodiscard]] constexpr bool is_ignored(int64_t row) const { return labels[row] == ignored; }
  [[nodiscard]] constexpr bool is_good(int64_t row) const {
    return labels[row] >= 0 && labels[row] < classes;
  }
};

/// y[row] = -log(x[row, label]), at most 1e20.
struct Entropy {
  Labels labels;
  const float* x;
  float* y;
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

/// Element i of the gradient of Entropy.
struct EntropyGradient {
  Labels labels;
  const float* x;
  const float* dy;
  float* dx;
  constexpr void operator()(int64_t i) const {
    const int64_t row = i / labels.classes;
    const bool hit = !labels.is_ignored(row) && labels.labels[row] == i % labels.classes;
    dx[i] = hit ? -dy[row] / x[i] : 0.0F;
  }
};

/// Softmax of a row of logits and the loss of its label, without overflow.
struct SoftmaxEntropy {
  Labels labels;
  const float* logits;
  float* softmax;
  float* loss;
  template <typename Team>
  constexpr void operator()(const Team& team, int64_t row) const {
    const int64_t columns = labels.classes;
    const float* const from = logits + row * columns;
    float* const to = softmax + row * columns;
    float most = from[0];
    for (int64_t c = team.rank(); c < columns; c += team.size())
      most = from[c] > most ? from[c] : most;
    most = team.max(most);
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
    team.max(0.0F);
    const float inverse = static_cast<float>(1.0 / sum);
    for (int64_t c = team.rank(); c < columns; c += team.size())
      to[c] = std::exp(from[c] - most) * inverse;
  }
};

/// Element i of the gradient of the logits. dlogits may be softmax.
struct SoftmaxEntropyGradient {
  Labels labels;
  const float* softmax;
  const float* dloss;
  float* dlogits;
  constexpr void operator()(int64_t i) const {
    const int64_t row = i / labels.classes;
    const float hit = labels.labels[row] == i % labels.classes ? 1.0F : 0.0F;
    dlogits[i] = labels.is_ignored(row) ? 0.0F : (softmax[i] - hit) * dloss[row];
  }
};

}  // namespace millrace::gpu
