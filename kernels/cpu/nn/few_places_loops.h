#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

/// The loops of FewPlaces, inlined into code for processors with 32 registers of 512 bits
/// (wide_loops.h).
namespace millrace::kernels {

/// A tap of the kernel under which a place of one image meets a place of the other.
struct PlaceMeeting {
  int32_t tap;
  int32_t place;
};

/// Offsets of a pixel of src and of the place of dst that it meets under one tap, in blocks of
/// channel 0.
struct PlacePair {
  int32_t src;
  int32_t dst;
};

/// How images of one kind become those of the other, blocks of 16 channels each. The meetings of
/// place p of the result are those from starts[p] to starts[p + 1].
struct PlaceSizes {
  int64_t blocks = 0;  ///< of the images that are read
  int64_t places = 0;  ///< of these, and of the result
  int64_t result_places = 0;
  int64_t taps = 0;
  int64_t next_block = 0;  ///< elements from the weights of one block to those of the next
  int64_t second = 0;      ///< and to those of the second block of the result
  const int32_t* starts = nullptr;
  const PlaceMeeting* meetings = nullptr;
};

/// Images that are worked on at once.
inline constexpr int64_t kPlaceImages = 8;
/// Channels of a block.
inline constexpr int64_t kPlaceLanes = 16;

/// sums[place][image][2][16] = two blocks of a result for eight images, from images that are packed
/// as [block][place][16][image]. The blocks of weights that belong to the first block of the images
/// begin at `weights`.
using FewPlacesLoop = void (*)(const PlaceSizes& sizes, const float* images, const float* weights,
                               float* sums);
/// Gradient of one block of weights, [tap][16][16]. x and y are the first elements of the blocks of
/// src and of the gradient of dst; pairs of tap t, from taps[t] to taps[t + 1], say which elements
/// meet.
using FewPlacesWeights = void (*)(const size_t* taps, int64_t tap_count, const PlacePair* pairs,
                                  const float* x, const float* y, float* weights);

namespace detail {

using PlaceVector [[gnu::vector_size(64)]] = float;
using StoredPlaces [[gnu::vector_size(64), gnu::aligned(4), gnu::may_alias]] = float;

inline const StoredPlaces& places_in(const float* at) {
  return *reinterpret_cast<const StoredPlaces*>(at);
}
inline StoredPlaces& places_out(float* at) {
  return *reinterpret_cast<StoredPlaces*>(at);
}

/// Exchanges one bit of the number of a row with that of the column, in two rows that differ in it.
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
  exchange_bit<1>(rows);
  exchange_bit<2>(rows);
  exchange_bit<4>(rows);
  exchange_bit<8>(rows);
#pragma GCC unroll 16
  for (int i = 0; i < kPlaceLanes; ++i) places_out(to + i * kPlaceLanes) = rows[i];
}

/// Blocks of weights for two blocks of the result, and where those are that come next: they are on
/// their way while these are worked on.
struct PlaceWeights {
  const float* left;
  const float* right;
  const float* next_left;
  const float* next_right;
};

/// Adds one block of images to one place of the result.
[[gnu::always_inline]] inline void add_meetings(const PlaceSizes& sizes, int64_t place,
                                                const float* images, const PlaceWeights& w,
                                                bool first, float* sum) {
  constexpr int64_t kTap = kPlaceLanes * kPlaceLanes;
  constexpr int64_t kPixel = kPlaceLanes * kPlaceImages;
  constexpr int64_t kRow = 2 * kPlaceLanes;
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

inline void few_places_forward(const PlaceSizes& sizes, const float* images, const float* weights,
                               float* sums) {
  constexpr int64_t kPixel = kPlaceLanes * kPlaceImages;
  for (int64_t block = 0; block < sizes.blocks; ++block) {
    const float* const left = weights + block * sizes.next_block;
    const float* const next = block + 1 < sizes.blocks ? left + sizes.next_block : left;
    const PlaceWeights w{left, left + sizes.second, next, next + sizes.second};
    for (int64_t place = 0; place < sizes.result_places; ++place) {
      add_meetings(sizes, place, images + block * sizes.places * kPixel, w, block == 0,
                   sums + place * 2 * kPixel);
    }
  }
}

/// The same with blocks of weights that are turned: at most kMostTurnedTaps taps.
inline constexpr int64_t kMostTurnedTaps = 9;
inline void few_places_data(const PlaceSizes& sizes, const float* images, const float* weights,
                            float* sums) {
  constexpr int64_t kTap = kPlaceLanes * kPlaceLanes;
  constexpr int64_t kPixel = kPlaceLanes * kPlaceImages;
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
    for (int64_t place = 0; place < sizes.result_places; ++place) {
      add_meetings(sizes, place, images + block * sizes.places * kPixel, w, block == 0,
                   sums + place * 2 * kPixel);
    }
  }
}

inline void few_places_weights(const size_t* taps, int64_t tap_count, const PlacePair* pairs,
                               const float* x, const float* y, float* weights) {
  for (int64_t tap = 0; tap < tap_count; ++tap) {
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
