#pragma once

#include <cstdint>

#include "kernels/gpu/functors/broadcast.h"

namespace millrace::gpu {

/// Running sums along the middle dim of [outer, size, inner], in parts of `chunk` elements. Call i
/// has one part of one row. The parts are added first, in a launch of its own; each part then
/// starts from the sum of those before it. Up to `chunk` elements are added in the order of the
/// processor.
template <typename T>
struct RunningSum {
  const T* x;      ///< elements
  T* out;          ///< results; may be x
  T* totals;       ///< [rows, chunks]; null if there is one part for each row
  int64_t size;    ///< elements of a row
  int64_t inner;   ///< distance of the elements of a row
  int64_t chunk;   ///< elements of a part
  int64_t chunks;  ///< parts of a row
  bool exclusive;  ///< an element is not part of its own sum
  bool reverse;    ///< sums begin at the end of the row
  bool counts;     ///< only the totals are computed
  constexpr void operator()(int64_t i) const {
    const int64_t row = i / chunks;
    const int64_t part = i - row * chunks;
    const int64_t start = row / inner * size * inner + row % inner;
    const int64_t begin = part * chunk;
    const int64_t end = begin + chunk < size ? begin + chunk : size;
    auto sum = T{};
    for (int64_t k = 0; !counts && k < part; ++k) sum = added(sum, totals[row * chunks + k]);
    for (int64_t k = begin; k < end; ++k) {
      const int64_t at = start + (reverse ? size - 1 - k : k) * inner;
      const T next = added(sum, x[at]);
      if (!counts) out[at] = exclusive ? sum : next;
      sum = next;
    }
    if (counts) totals[i] = sum;
  }

 private:
  /// Integers wrap around.
  static constexpr T added(T a, T b) {
    using U = typename Wrapping<T>::type;
    return static_cast<T>(static_cast<U>(a) + static_cast<U>(b));
  }
};

}  // namespace millrace::gpu
