#pragma once

#include <cstddef>
#include <cstdint>

// Functions that need a processor with tiles say so; nothing of them may be inlined elsewhere.
#define MILLRACE_TILES gnu::target("avx512f,avx512vl,avx512bw,avx512dq,amx-tile,amx-bf16,fma")

/// Factors of a product as tiles of bfloat16: three of each, whose sum is the factor.
namespace millrace::kernels::tiles {

// A tile has 16 rows of 16 pairs of bfloat16, or 16 x 16 floats. The pairs of a factor are of terms
// i and i + 16 of 32 terms of the sum: rounding then leaves them in the halves where they belong.
inline constexpr int64_t kSide = 16;
inline constexpr int64_t kTerms = 32;
inline constexpr int64_t kTileBytes = 1024;
/// What is multiplied at a time: two tiles of each factor.
inline constexpr int64_t kBlock = 2 * kSide;
inline constexpr int kParts = 3;
inline constexpr int64_t kPartBytes = 2 * kTileBytes;
/// Packed: kTerms terms of the sum for kBlock rows of a, or columns of b. Part after part, the two
/// tiles of one side by side.
inline constexpr int64_t kStepBytes = kParts * kPartBytes;

constexpr int64_t blocks_of(int64_t count, int64_t size) {
  return (count + size - 1) / size;
}

/// A bit for each of the first `count` of kSide lanes.
constexpr uint16_t first_lanes(int64_t count) {
  if (count <= 0) return 0;
  return count >= kSide ? uint16_t{0xffff} : static_cast<uint16_t>((1U << count) - 1U);
}

/// A factor as rows of the result (a) or columns (b), "lines", each of which has a sequence of
/// terms.
struct Factor {
  const float* data;
  int64_t stride;
  bool terms_follow;  ///< the terms of a line are neighbours, not the lines of a term
  bool lines_down;    ///< the rows of a tile are lines (a), not pairs of terms (b)
};

/// What numbers a packed block has.
struct Extremes {
  bool beyond = false;  ///< above 2^127, infinite or NaN: parts cannot stand for it
  bool large = false;   ///< above 2^10
  bool tiny = false;    ///< below 2^-103 and not 0: parts of it below 2^-126 count as 0
};

/// Packs kBlock lines from `line` on, terms [term, term + terms), as steps of kStepBytes; what is
/// not there is 0.
/// \param lines  that are there; more than kBlock mean no more
/// \param to  64-byte aligned
Extremes pack(const Factor& factor, int64_t line, int64_t lines, int64_t term, int64_t terms,
              std::byte* to);

}  // namespace millrace::kernels::tiles
