#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "kernels/cpu/transpose_tile.h"

/// The loops of FewPlaces and FewPlacesImages, for blocks of as many channels as a register has
/// floats: 16 in code for processors with 32 registers of 512 bits (wide_loops.h), 8 in code for 16
/// registers of 256 bits.
/// Memory of a pass, with L channels in a block: input images are [block][position][L
/// channels][8 images], so that one number of all images is contiguous; weights are [tap][L in][L
/// out] per pair of blocks; sums are [position][8 images][2 blocks][L channels].
namespace millrace::kernels {

/// True if a position is inside an image of these dims, [images, channels, height, width].
template <typename Dims>
bool is_inside(int64_t row, int64_t column, const Dims& image) {
  return row >= 0 && row < image[2] && column >= 0 && column < image[3];
}

/// A tap of the kernel, and the position in the input that it reads for a position of the result.
struct PlaceMeeting {
  int32_t tap;    ///< of the kernel
  int32_t place;  ///< position of the input
};

/// Offsets of a pixel of src and of the dst position that uses it under one tap, within channel
/// block 0.
struct PlacePair {
  int32_t src;  ///< in elements
  int32_t dst;  ///< in elements
};

/// Sizes of a pass from input images to result images, both in blocks of channels. The meetings
/// of position p of the result are those in [starts[p], starts[p + 1]).
struct PlaceSizes {
  int64_t blocks = 0;         ///< channel blocks of the input
  int64_t places = 0;         ///< positions of the input
  int64_t result_places = 0;  ///< positions of the result
  int64_t taps = 0;           ///< positions of the kernel
  int64_t next_block = 0;     ///< elements between the weights of adjacent input blocks
  int64_t second = 0;         ///< elements to the weights of the second result block
  const int32_t* starts = nullptr;
  const PlaceMeeting* meetings = nullptr;
};

/// Number of images processed together.
inline constexpr int64_t kPlaceImages = 8;
namespace detail {

/// 16 channels in one register; the second type is for memory at any alignment of float.
using WideVector [[gnu::vector_size(64)]] = float;
using StoredWide [[gnu::vector_size(64), gnu::aligned(4), gnu::may_alias]] = float;
constexpr int kWideLanes = 16;

/// Swaps one bit of the row index with the same bit of the column index, for two rows that differ
/// in it.
template <int kBit, int... kColumns>
[[gnu::always_inline]] inline void exchange_bit(WideVector& upper, WideVector& lower,
                                                std::integer_sequence<int, kColumns...>) {
  const WideVector a = upper;
  const WideVector b = lower;
  upper = __builtin_shufflevector(
      a, b, ((kColumns & kBit) == 0 ? kColumns : kWideLanes + kColumns - kBit)...);
  lower = __builtin_shufflevector(
      a, b, ((kColumns & kBit) == 0 ? kColumns + kBit : kWideLanes + kColumns)...);
}

/// The same for all 16 rows.
template <int kBit>
[[gnu::always_inline]] inline void exchange_bit(WideVector (&rows)[kWideLanes]) {
#pragma GCC unroll 16
  for (int i = 0; i < kWideLanes; ++i) {
    if ((i & kBit) == 0)
      exchange_bit<kBit>(rows[i], rows[i + kBit], std::make_integer_sequence<int, kWideLanes>());
  }
}

/// Blocks of 16 channels, for 32 registers: a pass has 16 sums, those of eight images.
struct WidePlaces {
  using Vector = WideVector;
  using Stored = StoredWide;
  static constexpr int64_t kLanes = kWideLanes;
  static constexpr int64_t kImages = kPlaceImages;  ///< of a pass

  /// to[j][i] = from[i][j].
  [[gnu::always_inline]] static void turn(const float* from, float* to) {
    WideVector rows[kWideLanes];
#pragma GCC unroll 16
    for (int i = 0; i < kWideLanes; ++i)
      rows[i] = *reinterpret_cast<const StoredWide*>(from + i * kWideLanes);
    // Transposing exchanges the index of rows with that of columns, bit by bit: four stages for 16.
    exchange_bit<1>(rows);
    exchange_bit<2>(rows);
    exchange_bit<4>(rows);
    exchange_bit<8>(rows);
#pragma GCC unroll 16
    for (int i = 0; i < kWideLanes; ++i)
      *reinterpret_cast<StoredWide*>(to + i * kWideLanes) = rows[i];
  }
};

/// Blocks of 8 channels, for 16 registers: a pass has eight sums, those of four images.
struct NarrowPlaces {
  using Vector [[gnu::vector_size(32)]] = float;
  using Stored [[gnu::vector_size(32), gnu::aligned(4), gnu::may_alias]] = float;
  static constexpr int64_t kLanes = 8;
  static constexpr int64_t kImages = kPlaceImages / 2;

  static void turn(const float* from, float* to) {
    transpose_8x8(reinterpret_cast<uint32_t*>(to), kLanes, reinterpret_cast<const uint32_t*>(from),
                  kLanes);
  }
};

/// Weight blocks for two blocks of the result, and those needed next, which are prefetched
/// meanwhile.
struct PlaceWeights {
  const float* left;   ///< for the first block of the result
  const float* right;  ///< for the second
  const float* next_left;
  const float* next_right;
};

/// Adds one block of images to one position of the result, for kImages of the eight images.
/// \param place   position of the result
/// \param images  one channel block: [position][L channels][8 images], from the first image on
/// \param w       weights of this input block for two blocks of the result
/// \param first   the sums start at 0; otherwise `sum` is added to
/// \param sum     [kImages images][2 blocks][L channels] of that position
template <typename Places, bool kPrefetches>
[[gnu::always_inline]] inline void add_meetings(const PlaceSizes& sizes, int64_t place,
                                                const float* images, const PlaceWeights& w,
                                                bool first, float* sum) {
  using Vector = typename Places::Vector;
  using Stored = typename Places::Stored;
  constexpr int64_t kLanes = Places::kLanes;
  constexpr int64_t kImages = Places::kImages;
  // 2 kImages sums, 2 vectors of weights and a broadcast number fit in the registers
  Vector a[kImages];
  Vector b[kImages];
#pragma GCC unroll 8
  for (int64_t n = 0; n < kImages; ++n) {
    const auto* const old = reinterpret_cast<const Stored*>(sum + n * 2 * kLanes);
    a[n] = first ? Vector{} : old[0];
    b[n] = first ? Vector{} : old[1];
  }
  for (int32_t m = sizes.starts[place]; m < sizes.starts[place + 1]; ++m) {
    const int64_t tap = sizes.meetings[m].tap * kLanes * kLanes;
    const float* const pixel = images + sizes.meetings[m].place * kLanes * kPlaceImages;
    for (int64_t i = 0; i < kLanes; ++i) {
      const int64_t row = tap + i * kLanes;
      const Vector p = *reinterpret_cast<const Stored*>(w.left + row);
      const Vector q = *reinterpret_cast<const Stored*>(w.right + row);
      if constexpr (kPrefetches) {
        __builtin_prefetch(w.next_left + row, 0, 2);
        __builtin_prefetch(w.next_right + row, 0, 2);
      }
#pragma GCC unroll 8
      for (int64_t n = 0; n < kImages; ++n) {
        const float value = pixel[i * kPlaceImages + n];
        a[n] += value * p;
        b[n] += value * q;
      }
    }
  }
#pragma GCC unroll 8
  for (int64_t n = 0; n < kImages; ++n) {
    auto* const out = reinterpret_cast<Stored*>(sum + n * 2 * kLanes);
    out[0] = a[n];
    out[1] = b[n];
  }
}

/// add_meetings() for all images, all positions of the result and one block of input channels;
/// block 0 starts the sums.
template <typename Places>
[[gnu::always_inline]] inline void add_all_meetings(const PlaceSizes& sizes, int64_t block,
                                                    const float* images, const PlaceWeights& w,
                                                    float* sums) {
  constexpr int64_t kPixel = Places::kLanes * kPlaceImages;
  constexpr int64_t kImages = Places::kImages;
  const float* const from = images + block * sizes.places * kPixel;
  for (int64_t place = 0; place < sizes.result_places; ++place) {
    float* const sum = sums + place * 2 * kPixel;
    add_meetings<Places, true>(sizes, place, from, w, block == 0, sum);
    if constexpr (kImages < kPlaceImages) {
      add_meetings<Places, false>(sizes, place, from + kImages, w, block == 0,
                                  sum + kImages * 2 * Places::kLanes);
    }
  }
}

/// The sums of eight images for two blocks of the result's channels, over all input blocks.
/// \param weights  of the first result block and of input block 0, in layout
/// FewPlaces::filter_layout()
/// \param sums     [position][8 images][2 blocks][L channels], overwritten
template <typename Places>
void few_places_forward(const PlaceSizes& sizes, const float* images, const float* weights,
                        float* sums) {
  for (int64_t block = 0; block < sizes.blocks; ++block) {
    const float* const left = weights + block * sizes.next_block;
    const float* const next = block + 1 < sizes.blocks ? left + sizes.next_block : left;
    const PlaceWeights w{left, left + sizes.second, next, next + sizes.second};
    add_all_meetings<Places>(sizes, block, images, w, sums);
  }
}

/// The same with transposed weight blocks, for at most kMostTurnedTaps taps.
inline constexpr int64_t kMostTurnedTaps = 9;
template <typename Places>
void few_places_data(const PlaceSizes& sizes, const float* images, const float* weights,
                     float* sums) {
  constexpr int64_t kTap = Places::kLanes * Places::kLanes;
  // the blocks of both result blocks, transposed once and used for all positions
  alignas(64) float turned[2][kMostTurnedTaps * kTap];
  for (int64_t block = 0; block < sizes.blocks; ++block) {
    const float* const left = weights + block * sizes.next_block;
    const float* const right = left + sizes.second;
    for (int64_t tap = 0; tap < sizes.taps; ++tap) {
      Places::turn(left + tap * kTap, turned[0] + tap * kTap);
      Places::turn(right + tap * kTap, turned[1] + tap * kTap);
    }
    const float* const next = block + 1 < sizes.blocks ? left + sizes.next_block : left;
    const PlaceWeights w{turned[0], turned[1], next, next + sizes.second};
    add_all_meetings<Places>(sizes, block, images, w, sums);
  }
}

/// The gradient of one block of the filter (L in x L out) for all taps: the sum over all pairs of
/// positions of the products of L input channels and L result channels.
/// \param taps     start of the pairs of each tap, tap_count + 1 entries
/// \param x, y     input and gradient of the result, as offsets of `pairs` refer to them
/// \param weights  [tap][L in][L out], overwritten
template <typename Places>
void few_places_weights(const size_t* taps, int64_t tap_count, const PlacePair* pairs,
                        const float* x, const float* y, float* weights) {
  using Stored = typename Places::Stored;
  constexpr int64_t kLanes = Places::kLanes;
  for (int64_t tap = 0; tap < tap_count; ++tap) {
    // the whole block of sums stays in registers
    typename Places::Vector rows[kLanes] = {};
    for (size_t k = taps[tap]; k < taps[tap + 1]; ++k) {
      const float* const pixel = x + pairs[k].src;
      const typename Places::Vector value = *reinterpret_cast<const Stored*>(y + pairs[k].dst);
#pragma GCC unroll 16
      for (int64_t i = 0; i < kLanes; ++i) rows[i] += pixel[i] * value;
    }
    auto* const out = reinterpret_cast<Stored*>(weights + tap * kLanes * kLanes);
#pragma GCC unroll 16
    for (int64_t i = 0; i < kLanes; ++i) out[i] = rows[i];
  }
}

}  // namespace detail
}  // namespace millrace::kernels
