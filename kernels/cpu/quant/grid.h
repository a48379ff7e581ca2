#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "kernels/device.h"
#include "kernels/dispatch.h"
#include "kernels/kernel.h"

namespace millrace::kernels {

/// The grid of integers that values are rounded to.
struct Grid {
  float bins = 127;  ///< largest integer
  /// Halves are rounded to even, and -bins - 1 is a possible result. Otherwise halves are rounded
  /// away from 0, and results are in [-bins, bins].
  bool half_even = false;
  bool back = false;  ///< convert back to the range of the values immediately

  Grid() = default;
  /// Reads bit_length and round_type.
  Grid(const KernelSetup& op, bool go_back)
      : bins(static_cast<float>((int64_t{1} << (op.attr<int64_t>("bit_length") - 1)) - 1)),
        half_even(op.attr<int64_t>("round_type") == 0),
        back(go_back) {}
};

/// x within [low, high]; NaN stays NaN. If low > high, as for a negative scale that a program
/// gives, the lower bound is applied last, so that numbers below it are low, and others at most
/// high.
template <typename C>
constexpr C clip_to_scale(C x, C low, C high) {
  return x < low ? low : (high < x ? high : x);
}

/// Rounds count values; scale is their largest magnitude.
/// \param x, out  may be the same
/// \param scale   values beyond it are clipped (not with half_even, which clips the integers); at
///                most 1e-30 counts as 0
/// \param grid    with `back`, results are multiples of scale / bins, otherwise integers
template <typename T>
void round_to_grid(const T* x, T* out, int64_t count, Compute<T> scale, const Grid& grid) {
  using C = Compute<T>;
  const C bins = static_cast<C>(grid.bins);
  // with a scale of 0, zeros stay zero
  const C inverse = scale <= C(1e-30) ? C(1) / (scale + C(1e-6)) : C(1) / scale;
  const C factor = bins * inverse;
  const C step = grid.back ? scale / bins : C(1);
  if (grid.half_even) {
    for (int64_t i = 0; i < count; ++i) {
      const C value =
          std::min(std::max(std::rint(factor * static_cast<C>(x[i])), -bins - C(1)), bins);
      out[i] = static_cast<T>(grid.back ? value * step : value);
    }
    return;
  }
  for (int64_t i = 0; i < count; ++i) {
    const C kept = clip_to_scale(static_cast<C>(x[i]), -scale, scale);
    const C value = std::round(factor * kept);
    out[i] = static_cast<T>(grid.back ? value * step : value);
  }
}

/// Largest magnitude; 0 if there are no values.
template <typename T>
Compute<T> largest_magnitude(const T* x, int64_t count) {
  using C = Compute<T>;
  C largest{};
  for (int64_t i = 0; i < count; ++i) largest = std::max(largest, std::abs(static_cast<C>(x[i])));
  return largest;
}

/// Quantization here has 0 at 0, and the kernels of the original ignore a zero point. Errors: an
/// element of it, of whatever type, is not 0.
inline Status check_zero_point(const KernelContext& ctx, ArgIndex arg, const char* slot) {
  const Tensor* const zero = ctx.find_in(arg);
  if (zero == nullptr) return Ok();
  const std::byte* const bytes = zero->raw();
  if (std::all_of(bytes, bytes + zero->bytes(), [](std::byte b) { return b == std::byte{}; }))
    return Ok();
  return ctx.error("{} must be 0, which the original takes it for, found {} with other numbers",
                   slot, describe(*zero));
}

}  // namespace millrace::kernels
