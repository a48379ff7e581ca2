#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>

namespace millrace::ps {

/// Mixes the bits of a key over all 64 bits; a bijection.
inline uint64_t mix_bits(uint64_t x) {
  x ^= x >> 33U;
  x *= 0xff51afd7ed558ccdULL;
  x ^= x >> 33U;
  x *= 0xc4ceb9fe1a85ec53ULL;
  return x ^ (x >> 33U);
}

/// Random numbers that depend only on a seed and a key: a row has the same initial values whenever
/// and wherever it is created.
class KeyedRandom {
 public:
  KeyedRandom(uint64_t seed, uint64_t key) : state_(mix_bits(seed + kStep) ^ mix_bits(key)) {}

  uint64_t next() { return mix_bits(state_ += kStep); }
  /// In [0, 1).
  double uniform() { return static_cast<double>(next() >> 11U) * 0x1p-53; }
  /// Mean 0, deviation 1.
  double gaussian() {
    const double radius = std::sqrt(-2 * std::log(1 - uniform()));
    return radius * std::cos(2 * std::numbers::pi * uniform());
  }

 private:
  static constexpr uint64_t kStep = 0x9e3779b97f4a7c15ULL;
  uint64_t state_;
};

}  // namespace millrace::ps
