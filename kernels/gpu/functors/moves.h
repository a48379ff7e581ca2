#pragma once

#include <cstdint>

#include "kernels/gpu/functors/walk.h"

// Functors that copy elements of any type, as words of 1, 2, 4, 8 or 16 bytes.
namespace millrace::gpu {

/// 16 bytes that are copied at once.
struct alignas(16) WideWord {
  uint64_t halves[2];
};

/// to[a] = from[b] for the positions (a, b) of a walk.
template <typename Word>
struct Move {
  const Word* from;  ///< start of the elements that are read
  Word* to;          ///< start of the elements that are written
  Walk<2> walk;      ///< operand 0 is `to`
  constexpr void operator()(int64_t i) const {
    const auto at = walk.at(i);
    to[at.of[0]] = from[at.of[1]];
  }
};

/// Sets words to a value.
template <typename Word>
struct Set {
  Word* to;    ///< start of the elements that are written
  Word value;  ///< of all elements
  constexpr void operator()(int64_t i) const { to[i] = value; }
};

/// How many parts one call joins or cuts.
inline constexpr int kMostParts = 32;

/// Matrices with the same number of rows that are side by side in one wide matrix.
template <typename Word>
struct Parts {
  int32_t count = 0;                     ///< parts of this call
  Divider row;                           ///< columns of all parts of this call
  int64_t whole_row = 0;                 ///< columns of the wide matrix
  Word* parts[kMostParts] = {};          ///< null: left out
  uint32_t starts[kMostParts + 1] = {};  ///< first column of each part within this call

  /// A column of one part.
  struct Place {
    Word* part;     ///< the element; null if the part is left out
    int64_t whole;  ///< its position in the wide matrix
  };
  [[nodiscard]] constexpr Place at(int64_t i) const {
    const uint32_t r = row.quotient(static_cast<uint32_t>(i));
    const uint32_t column = static_cast<uint32_t>(i) - r * row.divisor;
    int32_t low = 0;
    int32_t high = count;
    while (high - low > 1) {
      const int32_t middle = (low + high) / 2;
      (starts[middle] <= column ? low : high) = middle;
    }
    const uint32_t width = starts[low + 1] - starts[low];
    Word* const part = parts[low];
    const int64_t place = static_cast<int64_t>(r) * width + (column - starts[low]);
    return {part == nullptr ? nullptr : part + place, static_cast<int64_t>(r) * whole_row + column};
  }
};

/// Writes the parts to the wide matrix; parts that are left out become 0.
template <typename Word>
struct Join {
  Parts<Word> parts;  ///< the matrices
  Word* whole;        ///< at the first column of the parts
  constexpr void operator()(int64_t i) const {
    const auto at = parts.at(i);
    whole[at.whole] = at.part == nullptr ? Word{} : *at.part;
  }
};

/// Reads the parts from the wide matrix.
template <typename Word>
struct Cut {
  Parts<Word> parts;  ///< the matrices
  const Word* whole;
  constexpr void operator()(int64_t i) const {
    const auto at = parts.at(i);
    if (at.part != nullptr) *at.part = whole[at.whole];
  }
};

}  // namespace millrace::gpu
