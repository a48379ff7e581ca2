#pragma once

#include <cmath>
#include <cstdint>

namespace millrace::kernels {

/// How floats become 8-bit integers: as the fake_quantize ops round with bit_length 8.
struct Int8Grid {
  float scale = 1;         ///< magnitude that 127 represents, above 1e-30
  bool half_even = false;  ///< see Grid (quant/grid.h)
};

namespace detail {

/// Rounds count floats. \returns false if any is NaN; its integer is then meaningless.
inline bool round_to_int8(const Int8Grid& grid, const float* x, int8_t* out, int64_t count) {
  const float high = grid.scale;
  const float factor = 127.0F * (1.0F / grid.scale);
  int32_t numbers = 1;
  if (grid.half_even) {
    for (int64_t i = 0; i < count; ++i) {
      numbers &= x[i] == x[i] ? 1 : 0;
      const float product = factor * x[i];
      const float whole = std::rint(product);
      const float kept = whole > -128.0F ? (whole < 127.0F ? whole : 127.0F) : -128.0F;
      out[i] = static_cast<int8_t>(static_cast<int32_t>(kept));
    }
    return numbers == 1;
  }
  for (int64_t i = 0; i < count; ++i) {
    numbers &= x[i] == x[i] ? 1 : 0;
    const float kept = x[i] > -high ? (x[i] < high ? x[i] : high) : -high;
    const float product = factor * kept;
    const float whole = std::trunc(product);
    const float rest = product - whole;
    const float away = (rest >= 0.5F ? 1.0F : 0.0F) - (rest <= -0.5F ? 1.0F : 0.0F);
    out[i] = static_cast<int8_t>(static_cast<int32_t>(whole + away));
  }
  return numbers == 1;
}

}  // namespace detail
}  // namespace millrace::kernels
