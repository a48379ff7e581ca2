#pragma once

#include <cstddef>
#include <cstdint>

// Marks functions that need a processor with tiles. They must not be inlined into other code.
#define MILLRACE_TILES gnu::target("avx512f,avx512vl,avx512bw,avx512dq,amx-tile,amx-bf16,fma")

/// Factors of a product as bfloat16 tiles: three tiles per factor tile, whose sum is the factor.
namespace millrace::kernels::tiles {

// A tile has 16 rows of 16 pairs of bfloat16, or 16 x 16 floats. Each pair has terms i and i + 16
// of 32 terms of the sum: after the conversion to bfloat16 they are then already in the right
// halves.
inline constexpr int64_t kSide = 16;
inline constexpr int64_t kTerms = 32;
inline constexpr int64_t kTileBytes = 1024;
/// Size of one block of the product: two tiles of each factor.
inline constexpr int64_t kBlock = 2 * kSide;
inline constexpr int kParts = 3;
inline constexpr int64_t kPartBytes = 2 * kTileBytes;
/// Bytes of a packed block: kTerms terms of the sum for kBlock rows of a, or columns of b. The
/// parts follow each other; the two tiles of a part are adjacent.
inline constexpr int64_t kStepBytes = kParts * kPartBytes;

/// Number of blocks of that size that cover count elements.
constexpr int64_t blocks_of(int64_t count, int64_t size) {
  return (count + size - 1) / size;
}

/// A mask with one bit for each of the first `count` of kSide lanes.
constexpr uint16_t first_lanes(int64_t count) {
  if (count <= 0) return 0;
  return count >= kSide ? uint16_t{0xffff} : static_cast<uint16_t>((1U << count) - 1U);
}

/// A factor seen as "lines", each of which is a sequence of terms. Lines are rows of the result for
/// a and columns for b.
struct Factor {
  const float* data;  ///< element 0 of line 0
  int64_t stride;     ///< elements between lines, or between terms
  bool terms_follow;  ///< the terms of a line are contiguous, not the lines of a term
  bool lines_down;    ///< the rows of a tile are lines (a), not pairs of terms (b)
};

/// What kinds of numbers a packed block contains.
struct Extremes {
  bool beyond = false;  ///< above 2^127, infinite or NaN: three parts cannot represent it
  bool large = false;   ///< above 2^10
  bool tiny = false;    ///< below 2^-103 and not 0: parts below 2^-126 count as 0
};

/// Packs kBlock lines starting at `line`, terms [term, term + terms), in units of kStepBytes;
/// missing lines and terms are 0.
/// \param lines  number of lines available; those past kBlock are ignored
/// \param to  64-byte aligned
Extremes pack(const Factor& factor, int64_t line, int64_t lines, int64_t term, int64_t terms,
              std::byte* to);

}  // namespace millrace::kernels::tiles
