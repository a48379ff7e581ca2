#pragma once

#include <cstdint>
#include <limits>

#include "kernels/cpu/lane_sum.h"
#include "kernels/cpu/sums.h"
#include "kernels/cpu/vector_math.h"

namespace millrace::kernels {

/// Adds the mask of one row (null: none) to its scores and applies softmax in place. Like softmax,
/// clips exponents at -64.
/// \param mask_advances  false: one mask value for the whole row
/// \param count  numbers of the row, > 0; mask has as many, or one
template <typename T>
inline void masked_softmax(T* x, const T* mask, bool mask_advances, int64_t count) {
  if (mask != nullptr && mask_advances) {
    for (int64_t i = 0; i < count; ++i) x[i] += mask[i];
  } else if (mask != nullptr) {
    for (int64_t i = 0; i < count; ++i) x[i] += *mask;
  }
  const T top = combine_lanes(x, count, -std::numeric_limits<T>::infinity(),
                              [](T a, T b) { return a > b ? a : b; });
  for (int64_t i = 0; i < count; ++i) {
    const T rest = x[i] - top;
    x[i] = vmath::exp(rest < T(-64) ? T(-64) : rest);
  }
  const T scale = T(1) / sum_of(x, count);
  for (int64_t i = 0; i < count; ++i) x[i] *= scale;
}

/// Gradient of masked_softmax() in place: dp = p * (dp - sum of p * dp).
template <typename T>
inline void softmax_gradient(const T* p, T* dp, int64_t count) {
  const T dot = lane_sum<T>(count, [p, dp](int64_t i) { return p[i] * dp[i]; });
  for (int64_t i = 0; i < count; ++i) dp[i] = p[i] * (dp[i] - dot);
}

}  // namespace millrace::kernels
