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
  int64_t inner;
  float factor;  ///< of the sums; 1 / count for a mean
  template <typename Team>
  constexpr void operator()(const Team& team, int64_t row) const {
    double sum = 0;
    for (int64_t i = team.rank(); i < outer * inner; i += team.size())
      sum += static_cast<double>(x[(i / inner * rows + row) * inner + i % inner]);
    sum = team.sum(sum);
    if (team.rank() == 0) y[row] = static_cast<float>(sum) * factor;
  }
};

/// The largest of the elements of a row, which the team divides among its threads. Every thread
/// gets the result.
template <typename Team>
constexpr float largest_of_row(const Team& team, const float* from, int64_t columns) {
  float most = from[0];
  for (int64_t c = team.rank(); c < columns; c += team.size())
    most = from[c] > most ? from[c] : most;
  return team.max(most);
}

/// Softmax of rows with that many columns. y may be x.
struct Softmax {
  const float* x;  ///< [rows, columns]
  float* y;        ///< [rows, columns]
  int64_t columns;
  template <typename Team>
  constexpr void operator()(const Team& team, int64_t row) const {
    const float* const from = x + row * columns;
    float* const to = y + row * columns;
    // the largest element is subtracted, so that no exponential is above 1
    const float most = largest_of_row(team, from, columns);
    double sum = 0;
    for (int64_t c = team.rank(); c < columns; c += team.size())
      sum += static_cast<double>(std::exp(from[c] - most));
    const float inverse = static_cast<float>(1.0 / team.sum(sum));
    for (int64_t c = team.rank(); c < columns; c += team.size())
      to[c] = std::exp(from[c] - most) * inverse;
  }
};

/// dx = (dy - sum(y * dy)) * y.
struct SoftmaxGradient {
  const float* y;   ///< [rows, columns]: result of Softmax
  const float* dy;  ///< [rows, columns]
  float* dx;        ///< [rows, columns]; may be dy
  int64_t columns;
  template <typename Team>
  constexpr void operator()(const Team& team, int64_t row) const {
    const int64_t at = row * columns;
    double sum = 0;
    for (int64_t c = team.rank(); c < columns; c += team.size())
      sum += static_cast<double>(y[at + c]) * static_cast<double>(dy[at + c]);
    const auto all = static_cast<float>(team.sum(sum));
    for (int64_t c = team.rank(); c < columns; c += team.size())
      dx[at + c] = (dy[at + c] - all) * y[at + c];
  }
};

}  // namespace millrace::gpu
