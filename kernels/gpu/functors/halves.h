#pragma once

#include <cstdint>

#include "kernels/gpu/functors/moves.h"

// Floats of 16 bits, which are stored only: arithmetic is done in f32, and its results are rounded
// once, to the nearest with ties to even. The types of the processor (framework/tensor/float16.h)
// have the same bits, but not for the CUDA compiler.

/// On a GPU conversions are instructions, which no constant expression can have.
#ifdef __CUDACC__
#define MILLRACE_GPU_CONVERSION __host__ __device__ inline
#else
#define MILLRACE_GPU_CONVERSION constexpr
#endif

namespace millrace::gpu {

/// The bits of the nearest f16; a number that is too large becomes infinite.
MILLRACE_GPU_CONVERSION uint16_t half_bits(float value) {
#ifdef __CUDA_ARCH__
  uint16_t bits = 0;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return bits;
#else
  const auto all = __builtin_bit_cast(uint32_t, value);
  const uint32_t sign = all >> 16U & 0x8000U;
  const uint32_t size = all & 0x7fffffffU;
  if (size > 0x7f800000U) return static_cast<uint16_t>(sign | 0x7e00U);
  if (size < 0x38800000U) {
    // below 2^-14 there are multiples of 2^-24 only, as there are for floats just above 0.5
    const float shifted = __builtin_bit_cast(float, size) + 0.5F;
    return static_cast<uint16_t>(sign | (__builtin_bit_cast(uint32_t, shifted) - 0x3f000000U));
  }
  const uint32_t to_even = 0xfffU + (size >> 13U & 1U);
  const uint32_t rounded = (size + to_even - (112U << 23U)) >> 13U;  // biases differ by 112
  return static_cast<uint16_t>(sign | (rounded < 0x7c00U ? rounded : 0x7c00U));
#endif
}
/// The number with these bits.
MILLRACE_GPU_CONVERSION float half_value(uint16_t bits) {
#ifdef __CUDA_ARCH__
  float value = 0;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
  return value;
#else
  const uint32_t sign = (bits & 0x8000U) << 16U;
  const uint32_t size = bits & 0x7fffU;
  if (size < 0x400U) {
    const float multiple = static_cast<float>(size) * 0x1p-24F;
    return __builtin_bit_cast(float, __builtin_bit_cast(uint32_t, multiple) | sign);
  }
  const uint32_t bias = size < 0x7c00U ? 112U << 23U : 224U << 23U;
  return __builtin_bit_cast(float, sign | ((size << 13U) + bias));
#endif
}

/// f16.
struct Half {
  uint16_t bits = 0;  ///< sign, five bits of exponent, ten of mantissa
  constexpr Half() = default;
  MILLRACE_GPU_CONVERSION Half(float value)
      : bits(half_bits(value)) {}  // NOLINT(google-explicit-constructor)
  MILLRACE_GPU_CONVERSION operator float() const {
    return half_value(bits);
  }  // NOLINT(google-explicit-constructor)
};

/// bf16, the upper half of a float.
struct Brain {
  uint16_t bits = 0;  ///< sign, eight bits of exponent, seven of mantissa
  constexpr Brain() = default;
  constexpr Brain(float value) {  // NOLINT(google-explicit-constructor)
    const auto all = __builtin_bit_cast(uint32_t, value);
    const bool is_nan = (all & 0x7fffffffU) > 0x7f800000U;
    const uint32_t rounded = all + 0x7fffU + (all >> 16U & 1U);
    bits = static_cast<uint16_t>((is_nan ? all | 0x400000U : rounded) >> 16U);
  }
  constexpr operator float() const {  // NOLINT(google-explicit-constructor)
    return __builtin_bit_cast(float, static_cast<uint32_t>(bits) << 16U);
  }
};

/// Sets *found if an element is not finite, and does not change it otherwise.
template <typename T>
struct FindNotFinite {
  const T* x;      ///< elements
  uint8_t* found;  ///< one flag
  constexpr void operator()(int64_t i) const {
    const auto value = static_cast<float>(x[i]);
    if (!(value - value == 0.0F)) *found = 1;
  }
};

/// y = x / *divisor, or 0 * x if something that is not finite was found. y may be x.
template <typename T>
struct Unscale {
  const T* x;            ///< elements
  T* y;                  ///< results
  const float* divisor;  ///< one number
  const uint8_t* found;  ///< one flag
  constexpr void operator()(int64_t i) const {
    const float factor = *found != 0 ? 0.0F : 1.0F / *divisor;
    y[i] = static_cast<T>(static_cast<float>(x[i]) * factor);
  }
};

/// y = x, or 0 if something that is not finite was found. y may be x. Elements are words.
template <typename Word>
struct ClearIfFound {
  const Word* x;         ///< elements
  Word* y;               ///< results
  const uint8_t* found;  ///< one flag
  constexpr void operator()(int64_t i) const {
    if (*found != 0) {
      y[i] = Word{};
    } else if (y != x) {
      y[i] = x[i];
    }
  }
};

/// The next loss scale. Each of the results may be what it follows from.
struct NextLossScale {
  const uint8_t* found;  ///< one flag: a gradient was not finite
  const uint8_t* stop;   ///< one flag: nothing changes; may be null
  const float* scale;    ///< one number, like all that follow
  const int32_t* good;   ///< steps in a row without such gradients
  const int32_t* bad;    ///< steps in a row with them
  float* next_scale;     ///< the results
  int32_t* next_good;    ///< steps with this one
  int32_t* next_bad;     ///< the same
  int32_t raise_after;   ///< good steps
  int32_t lower_after;   ///< bad steps
  double raise;          ///< factor
  double lower;          ///< factor
  constexpr void operator()(int64_t /*i*/) const {
    constexpr double kMost =
        3.4028235677973366e38;  // what rounds to infinity as a float, and above
    double now = static_cast<double>(*scale);
    int32_t goods = *good;
    int32_t bads = *bad;
    const bool was_found = *found != 0;
    if (stop == nullptr || *stop == 0) {
      goods = was_found ? 0 : goods + 1;
      bads = was_found ? bads + 1 : 0;
      if (was_found && bads == lower_after) {
        now = now * lower > 1.0 ? now * lower : 1.0;
        bads = 0;
      }
      if (!was_found && goods == raise_after) {
        if (now * raise < kMost) now *= raise;
        goods = 0;
      }
    }
    *next_scale = static_cast<float>(now);
    *next_good = goods;
    *next_bad = bads;
  }
};

}  // namespace millrace::gpu
