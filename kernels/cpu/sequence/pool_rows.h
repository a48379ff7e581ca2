#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>

#include "kernels/kernel.h"

/// Pools the rows of a sequence into one.
namespace millrace::kernels {

/// How rows are pooled.
/// kSqrt divides the sum by the square root of the number of rows; kMax takes the maximum of each
/// column.
enum class SequencePool { kSum, kAverage, kSqrt, kLast, kFirst, kMax };

/// From attribute "pooltype", which the schema has checked.
inline SequencePool pool_of(const KernelSetup& op) {
  const auto name = op.attr<std::string>("pooltype");
  if (name == "SUM") return SequencePool::kSum;
  if (name == "SQRT") return SequencePool::kSqrt;
  if (name == "LAST") return SequencePool::kLast;
  if (name == "FIRST") return SequencePool::kFirst;
  return name == "MAX" ? SequencePool::kMax : SequencePool::kAverage;
}

/// Factor of a sum over that many rows.
template <typename T>
T factor_pool(SequencePool pool, int64_t rows) {
  if (pool == SequencePool::kAverage) return 1 / static_cast<T>(rows);
  return pool == SequencePool::kSqrt ? 1 / std::sqrt(static_cast<T>(rows)) : T(1);
}

/// out = scale * sum of rows; at least one row.
template <typename T>
void sum_rows(const T* __restrict x, int64_t rows, int64_t width, T scale, T* __restrict out) {
  std::copy_n(x, width, out);
  for (int64_t r = 1; r < rows; ++r) {
    const T* const row = x + r * width;
    for (int64_t k = 0; k < width; ++k) out[k] += row[k];
  }
  if (scale == 1) return;
  for (int64_t k = 0; k < width; ++k) out[k] *= scale;
}

/// out = maximum of the rows [begin, end), index = row of each maximum; null: not requested.
template <typename T>
void max_rows(const T* x, int64_t begin, int64_t end, int64_t width, T* out, int32_t* index) {
  std::copy_n(x + begin * width, width, out);
  if (index != nullptr) std::fill_n(index, width, static_cast<int32_t>(begin));
  for (int64_t r = begin + 1; r < end; ++r) {
    const T* const row = x + r * width;
    for (int64_t k = 0; k < width; ++k) {
      // the first of equal rows is kept; a NaN never replaces a number
      const bool larger = row[k] > out[k];
      if (index != nullptr) index[k] = larger ? static_cast<int32_t>(r) : index[k];
      out[k] = larger ? row[k] : out[k];
    }
  }
}

/// Pools one sequence, the rows [begin, end) of x; an empty one gets pad in all elements.
/// \param width  elements of a row
/// \param out    one row
/// \param index  one number per column for kMax (-1 for an empty sequence), else null
template <typename T>
void pool_one(SequencePool pool, const T* x, int64_t begin, int64_t end, int64_t width, T pad,
              T* out, int32_t* index) {
  if (begin == end) {
    std::fill_n(out, width, pad);
    if (index != nullptr) std::fill_n(index, width, -1);
    return;
  }
  switch (pool) {
    case SequencePool::kLast:
      std::copy_n(x + (end - 1) * width, width, out);
      return;
    case SequencePool::kFirst:
      std::copy_n(x + begin * width, width, out);
      return;
    case SequencePool::kMax:
      max_rows(x, begin, end, width, out, index);
      return;
    default:
      sum_rows(x + begin * width, end - begin, width, factor_pool<T>(pool, end - begin), out);
  }
}

}  // namespace millrace::kernels
