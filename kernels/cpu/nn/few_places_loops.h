#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

/// The loops of FewPlaces, inlined into code for processors with 32 registers of 512 bits
/// (wide_loops.h).
/// Memory of a pass: input images are [block][position][16 channels][8 images], so that one number
/// of all images is contiguous; weights are [tap][16 in][16 out] per pair of blocks; sums are
/// [position][8 images][2 blocks][16 channels].
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

/// Sizes of a pass from input images to result images, both in blocks of 16 channels. The meetings
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
/// Number of channels of a block.
inline constexpr int64_t kPlaceLanes = 16;

namespace detail {

/// The channels of a block in one register; the second type is for memory at any alignment of
/// float.
using PlaceVector [[gnu::vector_size(64)]] = float;
using StoredPlaces [[gnu::vector_size(64), gnu::aligned(4), gnu::may_alias]] = float;

/// Loads and stores of 16 floats at any alignment of float.
inline const StoredPlaces& places_in(const float* at) {
  return *reinterpret_cast<const StoredPlaces*>(at);
}
inline StoredPlaces& places_out(float* at) {
  return *reinterpret_cast<StoredPlaces*>(at);
}

/// Swaps one bit of the row index with the same bit of the column index, for two rows that differ
/// in it.
template <int kBit, int... kColumns>
[[gnu::always_inline]] inline void exchange_bit(PlaceVector& upper, PlaceVector& lower,
                                                std::integer_sequence<int, kColumns...>) {
  const PlaceVector a = upper;
  const PlaceVector b = lower;
  upper = __builtin_shufflevector(
      a, b, ((kColumns & kBit) == 0 ? kColumns : kPlaceLanes + kColumns - kBit)...);
  lower = __builtin_shufflevector(
      a, b, ((kColumns & kBit) == 0 ? kColumns + kBit : kPlaceLanes + kColumns)...);
}

/// The same for all 16 rows.
template <int kBit>
[[gnu::always_inline]] inline void exchange_bit(PlaceVector (&rows)[kPlaceLanes]) {
#pragma GCC unroll 16
  for (int i = 0; i < kPlaceLanes; ++i) {
    if ((i & kBit) == 0)
      exchange_bit<kBit>(rows[i], rows[i + kBit], std::make_integer_sequence<int, kPlaceLanes>());
  }
}

/// to[j][i] = from[i][j], 16 x 16.
[[gnu::always_inline]] inline void turn_block(const float* from, float* to) {
  static_assert(kPlaceLanes == 16);
  PlaceVector rows[kPlaceLanes];
#pragma GCC unroll 16
  for (int i = 0; i < kPlaceLanes; ++i) rows[i] = places_in(from + i * kPlaceLanes);
  // Transposing exchanges the index of rows with that of columns, bit by bit: four stages for 16.
  exchange_bit<1>(rows);
  exchange_bit<2>(rows);
  exchange_bit<4>(rows);
  exchange_bit<8>(rows);
#pragma GCC unroll 16
  for (int i = 0; i < kPlaceLanes; ++i) places_out(to + i * kPlaceLanes) = rows[i];
}

/// Weight blocks for two blocks of the result, and those needed next, which are prefetched
/// meanwhile.
struct PlaceWeights {
  const float* left;   ///< for the first block of the result
  const float* right;  ///< for the second
  const float* next_left;
  const float* next_right;
};

/// Adds one block of images to one position of the result.
/// \param place   position of the result
/// \param images  one channel block of eight images: [position][16 channels][8 images]
/// \param w       weights of this input block for two blocks of the result
/// \param first   the sums start at 0; otherwise `sum` is added to
/// \param sum     [8 images][2 blocks][16 channels] of that position
[[gnu::always_inline]] inline void add_meetings(const PlaceSizes& sizes, int64_t place,
                                                const float* images, const PlaceWeights& w,
                                                bool first, float* sum) {
  constexpr int64_t kTap = kPlaceLanes * kPlaceLanes;
  constexpr int64_t kPixel = kPlaceLanes * kPlaceImages;
  constexpr int64_t kRow = 2 * kPlaceLanes;
  // 16 sums, 2 vectors of weights and a broadcast number fit in the 32 registers
  PlaceVector a[kPlaceImages];
  PlaceVector b[kPlaceImages];
#pragma GCC unroll 8
  for (int64_t n = 0; n < kPlaceImages; ++n) {
    a[n] = first ? PlaceVector{} : places_in(sum + n * kRow);
    b[n] = first ? PlaceVector{} : places_in(sum + n * kRow + kPlaceLanes);
  }
  for (int32_t m = sizes.starts[place]; m < sizes.starts[place + 1]; ++m) {
    const int64_t tap = sizes.meetings[m].tap * kTap;
    const float* const pixel = images + sizes.meetings[m].place * kPixel;
    for (int64_t i = 0; i < kPlaceLanes; ++i) {
      const PlaceVector p = places_in(w.left + tap + i * kPlaceLanes);
      const PlaceVector q = places_in(w.right + tap + i * kPlaceLanes);
      __builtin_prefetch(w.next_left + tap + i * kPlaceLanes, 0, 2);
      __builtin_prefetch(w.next_right + tap + i * kPlaceLanes, 0, 2);
#pragma GCC unroll 8
      for (int64_t n = 0; n < kPlaceImages; ++n) {
        const float value = pixel[i * kPlaceImages + n];
        a[n] += value * p;
        b[n] += value * q;
      }
    }
  }
#pragma GCC unroll 8
  for (int64_t n = 0; n < kPlaceImages; ++n) {
    places_out(sum + n * kRow) = a[n];
    places_out(sum + n * kRow + kPlaceLanes) = b[n];
  }
}

/// add_meetings() for all positions of the result and one block of input channels; block 0 starts
/// the sums.
inline void add_all_meetings(const PlaceSizes& sizes, int64_t block, const float* images,
                             const PlaceWeights& w, float* sums) {
  constexpr int64_t kPixel = kPlaceLanes * kPlaceImages;
  for (int64_t place = 0; place < sizes.result_places; ++place) {
    add_meetings(sizes, place, images + block * sizes.places * kPixel, w, block == 0,
                 sums + place * 2 * kPixel);
  }
}

/// The sums of eight images for two blocks of the result's channels, over all input blocks.
/// \param weights  of the first result block and of input block 0, in layout
/// FewPlaces::kFilterLayout
/// \param sums     [position][8 images][2 blocks][16 channels], overwritten
inline void few_places_forward(const PlaceSizes& sizes, const float* images, const float* weights,
                               float* sums) {
  for (int64_t block = 0; block < sizes.blocks; ++block) {
    const float* const left = weights + block * sizes.next_block;
    const float* const next = block + 1 < sizes.blocks ? left + sizes.next_block : left;
    const PlaceWeights w{left, left + sizes.second, next, next + sizes.second};
    add_all_meetings(sizes, block, images, w, sums);
  }
}

/// The same with transposed weight blocks, for at most kMostTurnedTaps taps.
inline constexpr int64_t kMostTurnedTaps = 9;
inline void few_places_data(const PlaceSizes& sizes, const float* images, const float* weights,
                            float* sums) {
  constexpr int64_t kTap = kPlaceLanes * kPlaceLanes;
  // the blocks of both result blocks, transposed once and used for all positions
  alignas(64) float turned[2][kMostTurnedTaps * kTap];
  for (int64_t block = 0; block < sizes.blocks; ++block) {
    const float* const left = weights + block * sizes.next_block;
    const float* const right = left + sizes.second;
    for (int64_t tap = 0; tap < sizes.taps; ++tap) {
      turn_block(left + tap * kTap, turned[0] + tap * kTap);
      turn_block(right + tap * kTap, turned[1] + tap * kTap);
    }
    const float* const next = block + 1 < sizes.blocks ? left + sizes.next_block : left;
    const PlaceWeights w{turned[0], turned[1], next, next + sizes.second};
    add_all_meetings(sizes, block, images, w, sums);
  }
}

/// The gradient of one block of the filter (16 in x 16 out) for all taps: the sum over all pairs of
/// positions of the products of 16 input channels and 16 result channels.
/// \param taps     start of the pairs of each tap, tap_count + 1 entries
/// \param x, y     input and gradient of the result, as offsets of `pairs` refer to them
/// \param weights  [tap][16 in][16 out], overwritten
inline void few_places_weights(const size_t* taps, int64_t tap_count, const PlacePair* pairs,
                               const float* x, const float* y, float* weights) {
  for (int64_t tap = 0; tap < tap_count; ++tap) {
    // the whole block of 16 x 16 sums stays in registers
    PlaceVector rows[kPlaceLanes] = {};
    for (size_t k = taps[tap]; k < taps[tap + 1]; ++k) {
      const float* const pixel = x + pairs[k].src;
      const PlaceVector value = places_in(y + pairs[k].dst);
#pragma GCC unroll 16
      for (int64_t i = 0; i < kPlaceLanes; ++i) rows[i] += pixel[i] * value;
    }
    float* const out = weights + tap * kPlaceLanes * kPlaceLanes;
#pragma GCC unroll 16
    for (int64_t i = 0; i < kPlaceLanes; ++i) places_out(out + i * kPlaceLanes) = rows[i];
  }
}

}  // namespace detail
}  // namespace millrace::kernels
