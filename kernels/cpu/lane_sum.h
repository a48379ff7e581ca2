#pragma once

#include <cstdint>

namespace millrace::kernels {

/// Sum of f(0), ..., f(n - 1) with sixteen partial sums. It vectorizes without reordering by the
/// compiler, is more exact than one running sum, and produces the same bits in every call.
/// \param n  >= 0; the sum of nothing is 0
/// \param f  called with 0, ..., n - 1; returns a number that converts to C
template <typename C, typename F>
inline C lane_sum(int64_t n, F&& f) {
  constexpr int64_t kLanes = 16;
  C lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int64_t k = 0; k < kLanes; ++k) lanes[k] += f(i + k);
  }
  for (int64_t k = 0; i + k < n; ++k) lanes[k] += f(i + k);
  for (int64_t width = kLanes / 2; width > 0; width /= 2) {
    for (int64_t k = 0; k < width; ++k) lanes[k] += lanes[k + width];
  }
  return lanes[0];
}

}  // namespace millrace::kernels
