#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "kernels/cpu/lane_sum.h"
#include "kernels/device.h"
#include "kernels/dispatch.h"

namespace millrace::kernels {

/// A tensor viewed as rows, as layer_norm does.
/// begin_norm_axis divides the dims into those of `count` and those of `width`.
struct LayerNormRows {
  int64_t count = 1;  ///< number of rows
  int64_t width = 1;  ///< elements of a row, normalized together
};

/// Minimum number of rows that justifies another thread.
inline int64_t row_grain(int64_t width) {
  return std::max<int64_t>(32768 / std::max<int64_t>(width, 1), 1);
}

/// y = (x - mean) * deviation * scale + bias for one row; scale and bias may be null.
/// T is the type of elements, C that of sums and parameters; y may be x.
/// \param deviation  1 / sqrt(variance + epsilon)
template <typename T, typename C>
void normalise_row(const T* x, const C* scale, const C* bias, int64_t width, C mean, C deviation,
                   T* y) {
  if (scale != nullptr && bias != nullptr) {
    for (int64_t i = 0; i < width; ++i)
      y[i] = static_cast<T>((static_cast<C>(x[i]) - mean) * deviation * scale[i] + bias[i]);
    return;
  }
  for (int64_t i = 0; i < width; ++i) {
    const C value = (static_cast<C>(x[i]) - mean) * deviation;
    y[i] = static_cast<T>((scale == nullptr ? value : value * scale[i]) +
                          (bias == nullptr ? C{0} : bias[i]));
  }
}

/// layer_norm of all rows; y may be x. Means and variances are written if requested.
/// Sums have a fixed order (lane_sum()), so results do not depend on the number of threads.
/// \param epsilon           added to the variance
/// \param scale, bias       one element per column, or null for 1 and 0
/// \param means, variances  one element per row, or null; the variance is divided by the width
template <typename T, typename C>
void normalise_rows(CpuDevice& device, const LayerNormRows& rows, C epsilon, const T* x,
                    const C* scale, const C* bias, T* y, C* means, C* variances) {
  const int64_t width = rows.width;
  const C share = C{1} / static_cast<C>(std::max<int64_t>(width, 1));
  device.parallel_for(rows.count, row_grain(width), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const T* const row = x + r * width;
      const C mean =
          share * lane_sum<C>(width, [row](int64_t i) { return static_cast<C>(row[i]); });
      // second pass over the row: the difference of two large sums would lose digits
      const C variance = share * lane_sum<C>(width, [row, mean](int64_t i) {
                           const C distance = static_cast<C>(row[i]) - mean;
                           return distance * distance;
                         });
      if (means != nullptr) means[r] = mean;
      if (variances != nullptr) variances[r] = variance;
      normalise_row(row, scale, bias, width, mean, C{1} / std::sqrt(variance + epsilon),
                    y + r * width);
    }
  });
}

}  // namespace millrace::kernels
