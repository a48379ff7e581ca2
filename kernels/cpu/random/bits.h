#pragma once

#include <cstdint>

#include "kernels/dispatch.h"
#include "kernels/kernel.h"

/// Counter-based random bits: bits i of a stream depend on the key of the stream and i only. Loops
/// over them vectorize, and the numbers do not depend on the number of threads.
namespace millrace::kernels {

/// 64 bits: number `index` of the stream with this key. Neighbouring keys and indices produce
/// unrelated bits (the finalizer of splitmix64, keyed twice).
inline uint64_t random_bits(uint64_t key, uint64_t index) {
  uint64_t x = key + index * 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27U)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31U);
}

/// Key of the stream of an op: a seed attribute produces the same numbers in every run, 0 new ones.
inline uint64_t stream_key(CpuDevice& device, int64_t seed) {
  return seed == 0 ? device.next_seed()
                   : random_bits(0x5851f42d4c957f2dULL, static_cast<uint64_t>(seed));
}

/// The upper 24 bits as a number in [0, 1).
inline float unit_float(uint32_t bits) {
  return static_cast<float>(static_cast<int32_t>(bits >> 8U)) * 0x1p-24F;
}
/// The upper 53 bits as a number in [0, 1).
inline double unit_double(uint64_t bits) {
  return static_cast<double>(bits >> 11U) * 0x1p-53;
}

/// Fills a tensor of floats on several threads: doubles(elements, begin, end) for f64, else
/// pairs(elements, begin, end) for elements [2 * begin, 2 * end), of which the last may be one past
/// the end. \param grain  elements or pairs that are worth a thread
template <typename Doubles, typename Pairs>
Status draw_floats(CpuDevice& device, Tensor& out, int64_t grain, int64_t pair_grain,
                   Doubles&& doubles, Pairs&& pairs) {
  const int64_t count = out.numel();
  return dispatch<AllFloatTypes>(out.dtype(), [&](auto tag) -> Status {
    using T = typename decltype(tag)::type;
    T* const to = out.data<T>();
    if constexpr (std::is_same_v<T, double>) {
      device.parallel_for(count, grain,
                          [&](int64_t begin, int64_t end) { doubles(to, begin, end); });
    } else {
      device.parallel_for((count + 1) / 2, pair_grain,
                          [&](int64_t begin, int64_t end) { pairs(to, begin, end); });
    }
    return Ok();
  });
}

}  // namespace millrace::kernels
