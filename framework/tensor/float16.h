#pragma once

#include <bit>
#include <cstdint>

namespace millrace {

/// IEEE half precision. For storage; arithmetic converts to float. Rounds to nearest even.
struct Float16 {
  uint16_t bits = 0;

  Float16() = default;
  Float16(float value) : bits(encode(value)) {}    // NOLINT(google-explicit-constructor)
  operator float() const { return decode(bits); }  // NOLINT(google-explicit-constructor)

  /// Conversions of one number: too large becomes infinite, NaN stays NaN, subnormals are kept.
  static uint16_t encode(float value);
  static float decode(uint16_t bits);
};

/// The upper half of a float. For storage; arithmetic converts to float. Rounds to nearest even.
struct Bfloat16 {
  uint16_t bits = 0;

  Bfloat16() = default;
  Bfloat16(float value) : bits(encode(value)) {}  // NOLINT(google-explicit-constructor)
  operator float() const {                        // NOLINT(google-explicit-constructor)
    return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16U);
  }

  /// Drops the lower 16 bits, rounded to nearest even; a NaN gets a bit that is not dropped.
  static uint16_t encode(float value) {
    const auto x = std::bit_cast<uint32_t>(value);
    if ((x & 0x7fffffffU) > 0x7f800000U) return static_cast<uint16_t>((x >> 16U) | 0x40U);
    return static_cast<uint16_t>((x + 0x7fffU + ((x >> 16U) & 1U)) >> 16U);
  }
};

inline uint16_t Float16::encode(float value) {
  const auto x = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>((x >> 16U) & 0x8000U);
  const uint32_t magnitude = x & 0x7fffffffU;
  if (magnitude > 0x7f800000U) return static_cast<uint16_t>(sign | 0x7e00U);
  if (magnitude >= 0x477ff000U) return static_cast<uint16_t>(sign | 0x7c00U);  // rounds to infinity
  if (magnitude < 0x38800000U) {  // subnormal: adding 0.5 aligns and rounds the mantissa
    const float shifted = std::bit_cast<float>(magnitude) + 0.5F;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3f000000U));
  }
  // adds half of the last kept bit, or just below it if that bit is 0: ties go to even
  const uint32_t rounded = magnitude + 0xfffU + ((magnitude >> 13U) & 1U);
  return static_cast<uint16_t>(sign | ((rounded - 0x38000000U) >> 13U));
}

inline float Float16::decode(uint16_t bits) {
  const uint32_t sign = (bits & 0x8000U) << 16U;
  const uint32_t exponent = (bits >> 10U) & 0x1fU;
  const uint32_t mantissa = bits & 0x3ffU;
  if (exponent == 0x1fU) return std::bit_cast<float>(sign | 0x7f800000U | (mantissa << 13U));
  if (exponent == 0) {
    // subnormal: the mantissa counts multiples of 2^-24
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24F;
    return sign == 0 ? magnitude : -magnitude;
  }
  // 112 is the difference of the exponents' biases, 127 and 15
  return std::bit_cast<float>(sign | ((exponent + 112U) << 23U) | (mantissa << 13U));
}

}  // namespace millrace
