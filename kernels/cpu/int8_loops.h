#pragma once

#include <cmath>
#include <cstdint>

namespace millrace::kernels {

/// What the scale of a tensor is divided into.
inline constexpr float kInt8Bins = 127;

/// How floats become 8-bit integers: as the fake_quantize ops round with bit_length 8.
struct Int8Grid {
  float scale = 1;         ///< magnitude that 127 represents, above 1e-30
  bool half_even = false;  ///< see Grid (quant/grid.h)
};

/// What was found among floats that were rounded.
struct Int8Facts {
  bool numbers = true;     ///< none is NaN; the integer of one is meaningless
  bool negatives = false;  ///< an integer is below 0; without any they are also uint8
};

namespace detail {

inline Int8Facts round_to_int8(const Int8Grid& grid, const float* x, int8_t* out, int64_t count) {
  const float high = grid.scale;
  const float factor = 127.0F * (1.0F / grid.scale);
  int32_t numbers = 1;
  int32_t lowest = 0;
  if (grid.half_even) {
    for (int64_t i = 0; i < count; ++i) {
      numbers &= x[i] == x[i] ? 1 : 0;
      const float product = factor * x[i];
      const float whole = std::rint(product);
      const float kept = whole > -128.0F ? (whole < 127.0F ? whole : 127.0F) : -128.0F;
      const auto integer = static_cast<int32_t>(kept);
      lowest = integer < lowest ? integer : lowest;
      out[i] = static_cast<int8_t>(integer);
    }
    return {numbers == 1, lowest < 0};
  }
  for (int64_t i = 0; i < count; ++i) {
    numbers &= x[i] == x[i] ? 1 : 0;
    const float kept = x[i] > -high ? (x[i] < high ? x[i] : high) : -high;
    const float product = factor * kept;
    const float whole = std::trunc(product);
    const float rest = product - whole;
    const float away = (rest >= 0.5F ? 1.0F : 0.0F) - (rest <= -0.5F ? 1.0F : 0.0F);
    const auto integer = static_cast<int32_t>(whole + away);
    lowest = integer < lowest ? integer : lowest;
    out[i] = static_cast<int8_t>(integer);
  }
  return {numbers == 1, lowest < 0};
}

}  // namespace detail
}  // namespace millrace::kernels
