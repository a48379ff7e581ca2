#pragma once

#include <cstdint>

// Positions of elements in tensors that are read or written with other strides: transposed, cut,
// repeated or reversed.
namespace millrace::gpu {

/// Division of numbers below 2^31 by one divisor, as a product and a shift: a GPU has no
/// instruction for divisions of integers.
struct Divider {
  uint32_t divisor = 1;  ///< what numbers are divided by
  uint32_t factor = 1;   ///< of the product
  uint32_t shift = 0;    ///< of the sum of the product and the number

  /// Divides by 1.
  constexpr Divider() = default;
  /// \param by  in [1, 2^31)
  constexpr explicit Divider(int64_t by) : divisor(static_cast<uint32_t>(by)) {
    while ((int64_t{1} << shift) < by) ++shift;
    factor = static_cast<uint32_t>((((int64_t{1} << shift) - by) << 32) / by + 1);
  }
  /// \param n  below 2^31
  [[nodiscard]] constexpr uint32_t quotient(uint32_t n) const {
    const auto high = static_cast<uint32_t>((static_cast<uint64_t>(n) * factor) >> 32U);
    return (high + n) >> shift;
  }
};

/// Dims in which a walk is described; neighbours that all operands store together are one dim.
inline constexpr int kWalkDims = 6;

/// The positions in kOperands tensors that belong to number i of a box of indices, which are
/// counted in row-major order. Strides count elements; 0 repeats an element, negative ones go
/// backwards. The box has less than 2^31 indices.
template <int kOperands>
struct Walk {
  int32_t rank = 0;            ///< dims used; 0: the box has one index
  bool dense = false;          ///< position i of each operand belongs to number i
  Divider extents[kWalkDims];  ///< innermost first; the last one is not needed
  int64_t strides[kOperands][kWalkDims] = {};

  /// Positions in the operands.
  struct Positions {
    int64_t of[kOperands];  ///< by operand, in elements
  };
  /// \param number  of the index in the box
  [[nodiscard]] constexpr Positions at(int64_t number) const {
    Positions found{};
    if (dense) {
      for (int64_t& position : found.of) position = number;
      return found;
    }
    auto rest = static_cast<uint32_t>(number);
    for (int32_t dim = 0; dim < kWalkDims; ++dim) {
      if (dim >= rank) break;
      const uint32_t above = dim + 1 < rank ? extents[dim].quotient(rest) : 0;
      const auto index = static_cast<int64_t>(rest - above * extents[dim].divisor);
      for (int k = 0; k < kOperands; ++k) found.of[k] += index * strides[k][dim];
      rest = above;
    }
    return found;
  }
};

}  // namespace millrace::gpu
