#pragma once

#include <cstddef>
#include <cstdint>

namespace millrace::kernels {

/// Combines map(element) of count elements in several independent lanes, which compilers vectorize,
/// and then combines the lanes. The order depends on count only.
/// \param identity  result for no elements; combining with it must change nothing
/// \param map       returns a T for an element
/// \param combine   returns a T for two results
template <typename T, typename Map, typename Combine>
inline T combine_mapped(const T* values, int64_t count, T identity, Map map, Combine combine) {
  // two registers of 512 bits, or four of 256
  constexpr int64_t kLanes = 128 / sizeof(T);
  if (count < kLanes) {
    T total = identity;
    for (int64_t i = 0; i < count; ++i) total = combine(total, map(values[i]));
    return total;
  }
  T lanes[kLanes];
  for (int64_t k = 0; k < kLanes; ++k) lanes[k] = identity;
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int64_t k = 0; k < kLanes; ++k) lanes[k] = combine(lanes[k], map(values[i + k]));
  }
  for (int64_t k = 0; i < count; ++i, ++k) lanes[k] = combine(lanes[k], map(values[i]));
  for (int64_t width = kLanes / 2; width > 0; width /= 2) {
    for (int64_t k = 0; k < width; ++k) lanes[k] = combine(lanes[k], lanes[k + width]);
  }
  return lanes[0];
}

/// Combines the elements themselves; see combine_mapped().
template <typename T, typename Combine>
inline T combine_lanes(const T* values, int64_t count, T identity, Combine combine) {
  return combine_mapped(
      values, count, identity, [](T x) { return x; }, combine);
}

/// Sum of count elements; see combine_lanes(). Rounding errors grow with at most count / 32.
template <typename T>
inline T sum_of(const T* values, int64_t count) {
  return combine_lanes(values, count, T(0), [](T a, T b) { return a + b; });
}

}  // namespace millrace::kernels
