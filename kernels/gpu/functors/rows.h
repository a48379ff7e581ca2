#pragma once

#include <cmath>
#include <cstdint>

// Functors whose results need a whole row: a team of threads computes each. team.sum() and
// team.max() return the same value to all threads of the team.
namespace millrace::gpu {

/// y[row] = factor * sum of x[:, row, :]; x has the dims [outer, rows, inner]. Sums are kept in
/// double, so that their order hardly matters.
struct SumMiddle {
  const float* x;  ///< [outer, rows, inner]
  float* y;        ///< [rows]
  int64_t outer;   ///< extent before the kept dim
  int64_t rows;    ///< results
  int64_t inner;   ///< distance of the elements of a row
  float factor;    ///< of the sums; 1 / count for a mean
  template <typename Team>
  constexpr void operator()(const Team& team, int64_t row) const {
    double sum = 0;
    for (int64_t i = team.rank(); i < outer * inner; i += team.size())
      sum += static_cast<double>(x[(i / inner * rows + row) * inner + i % inner]);
    sum = team.sum(sum);
    if (team.rank() == 0) y[row] = static_cast<float>(sum) * factor;
  }
};

/// The largest of the elements of a row, which are `step` apart and which the team divides among
/// its threads. Every thread gets the result.
template <typename Team>
constexpr float largest_of_row(const Team& team, const float* from, int64_t columns,
                               int64_t step = 1) {
  float most = from[0];
  for (int64_t c = team.rank(); c < columns; c += team.size())
    most = from[c * step] > most ? from[c * step] : most;
  return team.max(most);
}

/// Softmax of the middle dim of [outer, columns, inner]; there is a row for each outer and inner
/// index. If logarithm is set, the results are logarithms. y may be x. Exponents are at least -64,
/// as on the processor and in the original: no probability is 0.
struct Softmax {
  const float* x;   ///< elements of the rows
  float* y;         ///< results
  int64_t columns;  ///< elements of each row
  int64_t inner;    ///< distance of the elements of a row
  bool logarithm;   ///< results are logarithms
  /// The exponent of an element, given the largest of its row. NaN stays NaN.
  static constexpr float exponent(float x, float most) {
    return x - most < -64.0F ? -64.0F : x - most;
  }
  template <typename Team>
  constexpr void operator()(const Team& team, int64_t row) const {
    const int64_t start = row / inner * columns * inner + row % inner;
    const float* const from = x + start;
    float* const to = y + start;
    // the largest element is subtracted, so that no exponential is above 1
    const float most = largest_of_row(team, from, columns, inner);
    double part = 0;
    for (int64_t c = team.rank(); c < columns; c += team.size())
      part += static_cast<double>(std::exp(exponent(from[c * inner], most)));
    const double sum = team.sum(part);
    const auto inverse = static_cast<float>(1.0 / sum);
    const auto log_sum = static_cast<float>(std::log(sum));
    for (int64_t c = team.rank(); c < columns; c += team.size()) {
      const float less = exponent(from[c * inner], most);
      to[c * inner] = logarithm ? less - log_sum : std::exp(less) * inverse;
    }
  }
};

/// dx = (dy - sum(y * dy)) * y; of logarithms dx = dy - exp(y) * sum(dy).
struct SoftmaxGradient {
  const float* y;   ///< result of Softmax
  const float* dy;  ///< dims of y
  float* dx;        ///< may be dy
  int64_t columns;  ///< elements of each row
  int64_t inner;    ///< distance of the elements of a row
  bool logarithm;   ///< results are logarithms
  template <typename Team>
  constexpr void operator()(const Team& team, int64_t row) const {
    const int64_t at = row / inner * columns * inner + row % inner;
    double sum = 0;
    for (int64_t c = team.rank(); c < columns; c += team.size()) {
      const auto d = static_cast<double>(dy[at + c * inner]);
      sum += logarithm ? d : static_cast<double>(y[at + c * inner]) * d;
    }
    const auto all = static_cast<float>(team.sum(sum));
    for (int64_t c = team.rank(); c < columns; c += team.size()) {
      const int64_t i = at + c * inner;
      dx[i] = logarithm ? dy[i] - std::exp(y[i]) * all : (dy[i] - all) * y[i];
    }
  }
};

}  // namespace millrace::gpu
