#pragma once

#include <cstdint>

#include "kernels/gpu/functors/walk.h"

// Functors that convert elements, and that draw random numbers.
namespace millrace::gpu {

/// y[i] = x[i] as another type; as in C++, but to bool everything but 0 is true.
template <typename From, typename To>
struct Convert {
  const From* x;  ///< elements to convert or scale
  To* y;          ///< results
  constexpr void operator()(int64_t i) const { y[i] = static_cast<To>(x[i]); }
};

/// y = factor * x + bias, or factor * (x + bias), of integers and f64.
template <typename T>
struct ScaleIntegers {
  const T* x;       ///< elements to convert or scale
  T* y;             ///< results
  T factor;         ///< of the elements
  T bias;           ///< summand
  bool bias_after;  ///< the summand is added to the product
  constexpr void operator()(int64_t i) const {
    y[i] = bias_after ? factor * x[i] + bias : factor * (x[i] + bias);
  }
};

/// y[i, c] = 1 where c is class[i], else 0.
template <typename Id>
struct OneHot {
  const Id* classes;  ///< one for each row
  float* y;           ///< results
  Divider depth;      ///< number of classes
  constexpr void operator()(int64_t i) const {
    const uint32_t row = depth.quotient(static_cast<uint32_t>(i));
    const auto column = static_cast<int64_t>(static_cast<uint32_t>(i) - row * depth.divisor);
    y[i] = static_cast<int64_t>(classes[row]) == column ? 1.0F : 0.0F;
  }
};

/// Number i of a stream; the same as kernels::random_bits(), so that a seed makes the same numbers
/// on every device.
constexpr uint64_t stream_bits(uint64_t key, uint64_t i) {
  uint64_t x = key + i * 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27U)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31U);
}

/// Element i of a dropout in training: kept if its 32 bits are not below the threshold. The order
/// in which elements get numbers is that of the CPU kernel. out may be x.
struct Drop {
  const float* x;  ///< elements to convert or scale
  float* out;      ///< results
  uint8_t* mask;   ///< 1: kept; null: not wanted
  uint64_t key;    ///< of the stream of random numbers
  uint32_t below;  ///< elements with smaller numbers are dropped
  bool all;        ///< every element is dropped
  float factor;    ///< of the elements
  constexpr void operator()(int64_t i) const {
    constexpr int64_t kBlock = 256;  // two halves of a number belong to elements of a block
    const int64_t in_block = i % kBlock;
    const int64_t half = kBlock / 2;
    const auto number = static_cast<uint64_t>((i - in_block) / 2 + in_block % half);
    const uint64_t bits = stream_bits(key, number);
    const auto word = static_cast<uint32_t>(in_block < half ? bits : bits >> 32U);
    const bool kept = !all && word >= below;
    out[i] = kept ? x[i] * factor : 0.0F;
    if (mask != nullptr) mask[i] = kept ? 1 : 0;
  }
};

/// dx[i] = factor * dout[i] where the mask is set, else 0. dx may be dout.
struct DropGradient {
  const float* dout;    ///< gradient of the results
  const uint8_t* mask;  ///< not 0: kept
  float* dx;            ///< gradient of the elements
  float factor;         ///< of the elements
  constexpr void operator()(int64_t i) const { dx[i] = mask[i] != 0 ? dout[i] * factor : 0.0F; }
};

/// Uniform numbers of [low, low + span), at most `last`.
struct DrawUniform {
  float* y;      ///< results
  uint64_t key;  ///< of the stream of random numbers
  float low;     ///< smallest number
  float span;    ///< width of the range
  float last;    ///< largest number
  constexpr void operator()(int64_t i) const {
    const uint64_t bits = stream_bits(key, static_cast<uint64_t>(i / 2));
    const auto word = static_cast<uint32_t>(i % 2 == 0 ? bits : bits >> 32U);
    const float drawn =
        low + span * (static_cast<float>(static_cast<int32_t>(word >> 8U)) * 0x1p-24F);
    y[i] = drawn < last ? drawn : last;
  }
};

}  // namespace millrace::gpu
