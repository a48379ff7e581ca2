#if defined(__GNUC__) && !defined(__clang__)
// GCC 12 warns about its own header, where values are undefined on purpose.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif

#include <algorithm>
#include <cstring>

#include "kernels/cpu/tile_pack.h"

namespace millrace::kernels::tiles {
namespace {

// Compares numbers by their upper 16 bits.
constexpr uint16_t kBeyond = 0x7f00;
constexpr uint16_t kLarge = (127 + 10) << 7;
constexpr uint16_t kTiny = (127 - 103) << 7;

// For each lane, the upper halves of the largest number and of the smallest number that is not 0
// (minus one, so that 0 compares as the largest).
struct Range {
  __m512i largest;
  __m512i smallest;
};

[[MILLRACE_TILES]] inline Range empty_range() {
  return {_mm512_setzero_si512(), _mm512_set1_epi32(-1)};
}

[[MILLRACE_TILES]] Extremes extremes_of(const Range& range) {
  const auto above = [&](uint16_t limit) __attribute__((target("avx512f,avx512bw"))) {
    return _mm512_cmpgt_epu16_mask(range.largest, _mm512_set1_epi16(static_cast<int16_t>(limit))) !=
           0;
  };
  const __mmask32 below =
      _mm512_cmplt_epu16_mask(range.smallest, _mm512_set1_epi16(static_cast<int16_t>(kTiny - 1)));
  return {above(kBeyond), above(kLarge), below != 0};
}

// Splits floats into three numbers of eight bits: the nearest one, the leading bits of the
// remainder, and the rest, which is exact. Each pair has x0 in its lower half.
[[MILLRACE_TILES, gnu::always_inline]] inline void cut(__m512 x0, __m512 x1, Range& range,
                                                       std::byte* to) {
  const __m512i half = _mm512_set1_epi32(0x8000);
  const __m512i upper = _mm512_set1_epi32(static_cast<int32_t>(0xffff0000U));
  const auto store = [&](int part, __m512i low, __m512i high) __attribute__((
      always_inline, target("avx512f,avx512vl,avx512bw,avx512dq,amx-tile,amx-bf16,fma"))) {
    const __m512i pair = _mm512_or_si512(_mm512_srli_epi32(low, 16), high);
    _mm512_store_si512(to + part * kPartBytes, pair);
    return pair;
  };
  __m512i high0 = _mm512_and_si512(_mm512_add_epi32(_mm512_castps_si512(x0), half), upper);
  __m512i high1 = _mm512_and_si512(_mm512_add_epi32(_mm512_castps_si512(x1), half), upper);
  const __m512i size = _mm512_and_si512(store(0, high0, high1), _mm512_set1_epi16(0x7fff));
  range.largest = _mm512_max_epu16(range.largest, size);
  range.smallest = _mm512_min_epu16(range.smallest, _mm512_sub_epi16(size, _mm512_set1_epi16(1)));
  x0 = _mm512_sub_ps(x0, _mm512_castsi512_ps(high0));
  x1 = _mm512_sub_ps(x1, _mm512_castsi512_ps(high1));
  high0 = _mm512_and_si512(_mm512_castps_si512(x0), upper);
  high1 = _mm512_and_si512(_mm512_castps_si512(x1), upper);
  store(1, high0, high1);
  x0 = _mm512_sub_ps(x0, _mm512_castsi512_ps(high0));
  x1 = _mm512_sub_ps(x1, _mm512_castsi512_ps(high1));
  // Eight significant bits, unless the number is below the smallest normal number: then they are in
  // the lower half.
  store(2, _mm512_castps_si512(x0), _mm512_and_si512(_mm512_castps_si512(x1), upper));
}

// 16 rows of 16 elements of 32 bits.
[[MILLRACE_TILES, gnu::always_inline]] inline void transpose(__m512i r[kSide]) {
  __m512i t[kSide];
  for (int i = 0; i < 8; ++i) {
    t[2 * i] = _mm512_unpacklo_epi32(r[2 * i], r[2 * i + 1]);
    t[2 * i + 1] = _mm512_unpackhi_epi32(r[2 * i], r[2 * i + 1]);
  }
  for (int i = 0; i < 16; i += 4) {
    r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
    r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
    r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
    r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
  }
  for (int i = 0; i < 4; ++i) {
    t[i] = _mm512_shuffle_i32x4(r[i], r[4 + i], 0x88);
    t[4 + i] = _mm512_shuffle_i32x4(r[i], r[4 + i], 0xdd);
    t[8 + i] = _mm512_shuffle_i32x4(r[8 + i], r[12 + i], 0x88);
    t[12 + i] = _mm512_shuffle_i32x4(r[8 + i], r[12 + i], 0xdd);
  }
  for (int i = 0; i < 4; ++i) {
    r[i] = _mm512_shuffle_i32x4(t[i], t[8 + i], 0x88);
    r[4 + i] = _mm512_shuffle_i32x4(t[4 + i], t[12 + i], 0x88);
    r[8 + i] = _mm512_shuffle_i32x4(t[i], t[8 + i], 0xdd);
    r[12 + i] = _mm512_shuffle_i32x4(t[4 + i], t[12 + i], 0xdd);
  }
}

// A row of a tile from memory, limited to the available elements.
template <bool kTermsFollow, bool kFull>
[[MILLRACE_TILES]] inline __m512i load_row(const float* from, int64_t stride, int64_t lines,
                                           int64_t terms, int64_t half, int64_t i) {
  const int64_t term = half * kSide + i;
  const float* const at = from + (kTermsFollow ? i * stride + half * kSide : term * stride);
  if constexpr (kFull) return _mm512_loadu_si512(at);
  const bool there = kTermsFollow ? i < lines : term < terms;
  const __mmask16 lanes =
      there ? first_lanes(kTermsFollow ? terms - half * kSide : lines) : __mmask16{0};
  return _mm512_maskz_loadu_epi32(lanes, there ? at : from);
}

// One tile of each part. kTurn: rows of memory become columns of a tile.
template <bool kTermsFollow, bool kTurn, bool kFull>
[[MILLRACE_TILES]] inline void pack_tile(const float* from, int64_t stride, int64_t lines,
                                         int64_t terms, Range& range, std::byte* to) {
  if constexpr (kTurn) {
    __m512i x[2][kSide];
    for (int64_t half = 0; half < 2; ++half) {
      for (int64_t i = 0; i < kSide; ++i)
        x[half][i] = load_row<kTermsFollow, kFull>(from, stride, lines, terms, half, i);
      transpose(x[half]);
    }
    for (int64_t i = 0; i < kSide; ++i)
      cut(_mm512_castsi512_ps(x[0][i]), _mm512_castsi512_ps(x[1][i]), range, to + i * 64);
    return;
  }
  for (int64_t i = 0; i < kSide; ++i) {
    const __m512i low = load_row<kTermsFollow, kFull>(from, stride, lines, terms, 0, i);
    const __m512i high = load_row<kTermsFollow, kFull>(from, stride, lines, terms, 1, i);
    cut(_mm512_castsi512_ps(low), _mm512_castsi512_ps(high), range, to + i * 64);
  }
}

// Like pack().
template <bool kTermsFollow, bool kTurn>
[[MILLRACE_TILES]] Extremes pack_lines(const Factor& f, int64_t line, int64_t lines, int64_t term,
                                       int64_t terms, std::byte* to) {
  Range range = empty_range();
  for (int64_t t = 0; t < terms; t += kTerms, to += kStepBytes) {
    for (int64_t h = 0; h < 2; ++h) {
      const int64_t first = line + h * kSide;
      const int64_t at = kTermsFollow ? first * f.stride + term + t : (term + t) * f.stride + first;
      std::byte* const tile = to + h * kTileBytes;
      if (lines >= (h + 1) * kSide && terms - t >= kTerms) {
        pack_tile<kTermsFollow, kTurn, true>(f.data + at, f.stride, kSide, kTerms, range, tile);
      } else if (lines > h * kSide) {
        pack_tile<kTermsFollow, kTurn, false>(f.data + at, f.stride, lines - h * kSide, terms - t,
                                              range, tile);
      } else {
        for (int part = 0; part < kParts; ++part)
          std::memset(tile + part * kPartBytes, 0, kTileBytes);
      }
    }
  }
  return extremes_of(range);
}

}  // namespace

Extremes pack(const Factor& f, int64_t line, int64_t lines, int64_t term, int64_t terms,
              std::byte* to) {
  if (f.terms_follow)
    return (f.lines_down ? pack_lines<true, false> : pack_lines<true, true>)(f, line, lines, term,
                                                                             terms, to);
  return (f.lines_down ? pack_lines<false, true> : pack_lines<false, false>)(f, line, lines, term,
                                                                             terms, to);
}

}  // namespace millrace::kernels::tiles
