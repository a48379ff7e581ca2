#pragma once

#include <cstdint>

namespace millrace::kernels {

namespace detail {

/// Eight 32-bit elements in one register.
using Lanes8 __attribute__((vector_size(32), aligned(4), may_alias)) = uint32_t;

/// Writes the 8 by 8 matrix at from, whose columns are from_step elements apart, row by row.
inline void transpose_8x8(uint32_t* to, int64_t to_step, const uint32_t* from, int64_t from_step) {
  Lanes8 a[8];
  Lanes8 b[8];
  for (int i = 0; i < 8; ++i) a[i] = *reinterpret_cast<const Lanes8*>(from + i * from_step);
  for (int i = 0; i < 8; i += 2) {  // pairs of columns interleaved
    b[i] = __builtin_shufflevector(a[i], a[i + 1], 0, 8, 1, 9, 4, 12, 5, 13);
    b[i + 1] = __builtin_shufflevector(a[i], a[i + 1], 2, 10, 3, 11, 6, 14, 7, 15);
  }
  for (int i = 0; i < 8; i += 4) {  // then fours
    a[i] = __builtin_shufflevector(b[i], b[i + 2], 0, 1, 8, 9, 4, 5, 12, 13);
    a[i + 1] = __builtin_shufflevector(b[i], b[i + 2], 2, 3, 10, 11, 6, 7, 14, 15);
    a[i + 2] = __builtin_shufflevector(b[i + 1], b[i + 3], 0, 1, 8, 9, 4, 5, 12, 13);
    a[i + 3] = __builtin_shufflevector(b[i + 1], b[i + 3], 2, 3, 10, 11, 6, 7, 14, 15);
  }
  for (int i = 0; i < 4; ++i) {  // then halves
    b[i] = __builtin_shufflevector(a[i], a[i + 4], 0, 1, 2, 3, 8, 9, 10, 11);
    b[i + 4] = __builtin_shufflevector(a[i], a[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
  }
  for (int i = 0; i < 8; ++i) *reinterpret_cast<Lanes8*>(to + i * to_step) = b[i];
}

}  // namespace detail

/// to[r * to_step + c] = from[c * from_step + r] for r < rows, c < columns. For few rows: the cache
/// lines of the source that hold them should stay in the L1 cache.
/// U is an unsigned integer of the size of the elements; to and from must not overlap.
template <typename U>
void transpose_plane(U* to, int64_t to_step, const U* from, int64_t from_step, int64_t rows,
                     int64_t columns) {
  constexpr int64_t kTile = 8;
  for (int64_t c0 = 0; c0 < columns; c0 += kTile) {
    const int64_t width = columns - c0 < kTile ? columns - c0 : kTile;
    for (int64_t r0 = 0; r0 < rows; r0 += kTile) {
      const int64_t height = rows - r0 < kTile ? rows - r0 : kTile;
      U* const corner = to + r0 * to_step + c0;
      const U* const source = from + c0 * from_step + r0;
      if constexpr (sizeof(U) == 4) {
        if (width == kTile && height == kTile) {
          detail::transpose_8x8(corner, to_step, source, from_step);
          continue;
        }
      }
      for (int64_t r = 0; r < height; ++r) {
        for (int64_t c = 0; c < width; ++c) corner[r * to_step + c] = source[c * from_step + r];
      }
    }
  }
}

}  // namespace millrace::kernels
