#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

/// Functions of one number that a compiler can vectorize: no calls, no branches, no tables. The
/// float versions are within 3 units in the last place of the true value; the polynomials are
/// minimax fits made for this file. The double versions are those of the C library.
///
/// NaN in, NaN out. Thread-safety: pure.
namespace millrace::kernels::vmath {

namespace detail {
/// exp(x) = (1 + fraction) * low * high, with |fraction| < 0.42 and two powers of two.
struct ExpParts {
  float fraction;
  float low;
  float high;
};

/// 2^n for n in [-126, 127], made from the exponent bits.
inline float power_of_two(int32_t n) {
  return std::bit_cast<float>((n + 127) << 23);
}

/// x = n * log(2) + r with |r| <= log(2) / 2; the polynomial is exp(r) - 1. log(2) is subtracted as
/// two constants, of which the first is exact in few bits, so that r keeps its digits.
inline ExpParts exp_parts(float x) {
  // Outside these bounds the result is 0 or infinite anyway; NaN compares false and is unchanged.
  x = x < -104.0F ? -104.0F : x;
  x = x > 89.0F ? 89.0F : x;
  // Adding 1.5 * 2^23 leaves the nearest integer in the low bits.
  constexpr float kRound = 12582912.0F;
  const float shifted = x * 1.44269504F + kRound;
  const int32_t n = std::bit_cast<int32_t>(shifted) - std::bit_cast<int32_t>(kRound);
  const float whole = shifted - kRound;
  const float r = (x - whole * 0.693359375F) + whole * 2.12194440e-4F;
  float q = 1.395172e-3F;
  q = q * r + 8.369599e-3F;
  q = q * r + 4.1666187e-2F;
  q = q * r + 1.6666512e-1F;
  q = q * r + 0.5F;
  // Two factors, so that results outside the range of one power of two are representable.
  const int32_t half = n >> 1;
  return {r + r * r * q, power_of_two(half), power_of_two(n - half)};
}
}  // namespace detail

/// e^x: 0 below -104, infinite above 89.
inline float exp(float x) {
  const detail::ExpParts p = detail::exp_parts(x);
  return (p.fraction * p.low + p.low) * p.high;
}
inline double exp(double x) {
  return std::exp(x);
}

/// exp(x) - 1 without loss near 0.
inline float expm1(float x) {
  const detail::ExpParts p = detail::exp_parts(x);
  // Above the clamp of exp_parts the product would be finite times infinite, which is right.
  const float power = p.low * p.high;
  return p.fraction * power + (power - 1.0F);
}
inline double expm1(double x) {
  return std::expm1(x);
}

/// (e^2x - 1) / (e^2x + 1); beyond 9.2 the result is 1 in float.
inline float tanh(float x) {
  float y = x < -9.2F ? -9.2F : x;
  y = y > 9.2F ? 9.2F : y;
  const float e = expm1(2.0F * y);
  return e / (e + 2.0F);
}
inline double tanh(double x) {
  return std::tanh(x);
}

/// 1 / (1 + e^-x).
inline float sigmoid(float x) {
  return 1.0F / (1.0F + exp(-x));
}
inline double sigmoid(double x) {
  return 1.0 / (1.0 + std::exp(-x));
}

/// Natural logarithm: -infinity at 0, NaN below 0; subnormal numbers are scaled first.
inline float log(float x) {
  constexpr float kSmallest = 1.17549435e-38F;
  const float normal = x < kSmallest ? x * 8388608.0F : x;
  const float shift = x < kSmallest ? -23.0F : 0.0F;
  // Splits the exponent so that the mantissa is in [sqrt(0.5), sqrt(2)).
  const auto bits = std::bit_cast<uint32_t>(normal);
  const int32_t exponent = static_cast<int32_t>(bits - 0x3f3504f3U) >> 23;
  const float f = std::bit_cast<float>(bits - (static_cast<uint32_t>(exponent) << 23U)) - 1.0F;
  const float e = static_cast<float>(exponent) + shift;
  float p = -7.859615e-02F;
  p = p * f + 1.2881649e-01F;
  p = p * f - 1.3128754e-01F;
  p = p * f + 1.4181192e-01F;
  p = p * f - 1.6624554e-01F;
  p = p * f + 2.0002286e-01F;
  p = p * f - 2.500081e-01F;
  p = p * f + 3.3333316e-01F;
  const float square = f * f;
  float result = square * f * p + e * -2.12194440e-4F;
  result = (result - 0.5F * square) + f;
  result = result + e * 0.693359375F;
  constexpr float kInfinity = __builtin_inff();
  result = x > 3.40282347e+38F ? kInfinity : result;
  result = x == 0.0F ? -kInfinity : result;
  result = x < 0.0F ? __builtin_nanf("") : result;
  return x != x ? x : result;
}
inline double log(double x) {
  return std::log(x);
}

/// log(1 + x) for x in [0, 1], without loss near 0.
inline float log1p_unit(float x) {
  const float u = 1.0F + x;
  return log(u) + (x - (u - 1.0F)) / u;
}
inline double log1p_unit(double x) {
  return std::log1p(x);
}

/// log(1 + exp(x)), without overflow.
template <typename T>
inline T softplus(T x) {
  const T magnitude = x < T(0) ? -x : x;
  return (x > T(0) ? x : T(0)) + log1p_unit(exp(-magnitude)) + (x != x ? x : T(0));
}

/// Error function: x * polynomial(x^2) below 1; above, 1 - exp(-g), where a polynomial approximates
/// g = -log(1 - erf).
inline float erf(float x) {
  const float t = x < 0.0F ? -x : x;
  const float z = x * x;
  float near = 7.889123e-05F;
  near = near * z - 8.020842e-04F;
  near = near * z + 5.1895357e-03F;
  near = near * z - 2.6854444e-02F;
  near = near * z + 1.12836e-01F;
  near = near * z - 3.7612626e-01F;
  near = near * z + 1.1283791F;
  // -log(1 - erf(t)); for t >= 4 the result is 1 in float.
  const float s = t > 4.0F ? 4.0F : t;
  float g = -1.8882277e-04F;
  g = g * s + 2.9724343e-03F;
  g = g * s - 2.19404e-02F;
  g = g * s + 1.0332729e-01F;
  g = g * s + 6.378831e-01F;
  g = g * s + 1.1272514F;
  g = g * s + 3.0043724e-04F;
  const float far = 1.0F - exp(-g);
  return t < 1.0F ? near * x : (x < 0.0F ? -far : far);
}
inline double erf(double x) {
  return std::erf(x);
}

}  // namespace millrace::kernels::vmath
