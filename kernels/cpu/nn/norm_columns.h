#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "kernels/cpu/layouts.h"

/// Batch normalization of images in blocks of channels. It processes a few channels (a column) at a
/// time from start to end, so that the data of a column stays in the L2 cache. The functions of
/// namespace `detail` are inlined into loops for specific processors (wide_loops.h).
namespace millrace::kernels {

/// y = (x - mean) * factor + bias [+ z], not below 0 if relu. Vectors have one element per channel.
struct NormForward {
  ChannelBlocks l;                   ///< layout of x, y and z
  const float* x = nullptr;          ///< images
  const float* z = nullptr;          ///< another image; null: none
  float* y = nullptr;                ///< may be x or z
  const float* scale = nullptr;      ///< null: 1
  const float* bias = nullptr;       ///< null: 0
  const float* mean = nullptr;       ///< running mean; the next field is the running variance
  const float* variance = nullptr;   ///< running variance
  float* mean_out = nullptr;         ///< null: not requested; the same for the next field
  float* variance_out = nullptr;     ///< new running variance
  float* saved_mean = nullptr;       ///< mean that was subtracted
  float* saved_deviation = nullptr;  ///< 1 / sqrt(variance + epsilon)
  float momentum = 0;                ///< weight of the old running statistics
  float epsilon = 0;                 ///< added to the variance
  bool global = false;               ///< the running statistics are used, not those of the images
  bool relu = false;                 ///< applies max(y, 0)
};

/// The gradient. The incoming gradient is the sum of dy and `more` (if not null). It is 0 where y
/// is not above 0 (if y is not null).
struct NormBackward {
  ChannelBlocks l;                   ///< layout of all images
  const float* x = nullptr;          ///< images that the forward op normalized
  const float* y = nullptr;          ///< result of the rectifier; null: no rectifier
  const float* dy = nullptr;         ///< incoming gradient
  const float* more = nullptr;       ///< second summand of the incoming gradient
  const float* scale = nullptr;      ///< null: 1
  const float* mean = nullptr;       ///< mean that was subtracted
  const float* deviation = nullptr;  ///< factor that was applied
  float* dz = nullptr;               ///< gradient of z; may be dy or more
  float* dx = nullptr;               ///< null: not requested; may be x, dy or more
  float* dscale = nullptr;           ///< overwritten
  float* dbias = nullptr;            ///< overwritten
  bool constant_statistics = false;  ///< mean and variance are not functions of x
};

/// Number of channels of a column.
/// 16 channels fill a register of 512 bits; blocks of 8 lanes need columns of 8.
inline int64_t norm_column_width(const ChannelBlocks& l) {
  return l.lanes % 16 == 0 ? 16 : 8;
}
/// Number of columns, including those of padding channels.
inline int64_t norm_column_count(const ChannelBlocks& l) {
  return l.padded() / norm_column_width(l);
}

/// Calls body(begin, end) for ranges of columns on the threads of the device.
/// Columns are independent, and each is computed in a fixed order: results do not depend on the
/// number of threads.
template <typename Body>
void for_norm_columns(CpuDevice& device, const ChannelBlocks& l, Body&& body) {
  constexpr int64_t kEnough = 32768;  // minimum number of elements per thread
  const int64_t work = std::max<int64_t>(l.outer * l.inner * norm_column_width(l), 1);
  device.parallel_for(norm_column_count(l), std::max<int64_t>(kEnough / work, 1), body);
}

namespace detail {

/// One float per channel of a column, at any alignment.
template <int kWidth>
struct Lanes {
  using Vector [[gnu::vector_size(kWidth * sizeof(float))]] = float;
  using Stored [[gnu::vector_size(kWidth * sizeof(float)), gnu::aligned(4), gnu::may_alias]] =
      float;

  /// Load and store of one float per channel.
  static const Stored& in(const float* at) { return *reinterpret_cast<const Stored*>(at); }
  static Stored& out(float* at) { return *reinterpret_cast<Stored*>(at); }
};

/// Offset in image 0 of a column's first channel.
template <int kWidth>
inline int64_t column_start(const ChannelBlocks& l, int64_t channel) {
  return channel / l.lanes * l.inner * l.lanes + channel % l.lanes;
}

/// body(offset, which) for the elements of a column in one image; `which` cycles through 0 to 3, so
/// that four sums can run in parallel.
template <typename Body>
[[gnu::always_inline]] inline void for_image(const ChannelBlocks& l, int64_t first, Body&& body) {
  const int64_t lanes = l.lanes;
  int64_t at = first;
  int64_t i = 0;
  for (; i + 4 <= l.inner; i += 4, at += 4 * lanes) {
    body(at, std::integral_constant<int, 0>());
    body(at + lanes, std::integral_constant<int, 1>());
    body(at + 2 * lanes, std::integral_constant<int, 2>());
    body(at + 3 * lanes, std::integral_constant<int, 3>());
  }
  for (; i < l.inner; ++i, at += lanes) body(at, std::integral_constant<int, 0>());
}
/// body(offset of the column) for all images.
template <typename Body>
[[gnu::always_inline]] inline void for_images(const ChannelBlocks& l, int64_t first, Body&& body) {
  const int64_t image = l.padded() * l.inner;
  for (int64_t n = 0; n < l.outer; ++n) body(first + n * image);
}

/// Mean and variance of each channel of a column, over all images.
/// \param first  offset of the column in image 0 (column_start())
/// \param mean, variance  kWidth numbers each
template <int kWidth>
inline void column_moments(const ChannelBlocks& l, int64_t first, const float* x, float* mean,
                           float* variance) {
  using L = Lanes<kWidth>;
  using V = typename L::Vector;
  const float share = 1.0F / static_cast<float>(l.outer * l.inner);
  // one image at a time, so that rounding errors stay small
  V total{};
  for_images(l, first, [&](int64_t image) {
    V sums[4] = {};
    for_image(l, image, [&](int64_t at, auto which) { sums[which] += L::in(x + at); });
    total += (sums[0] + sums[1]) + (sums[2] + sums[3]);
  });
  const V middle = total * share;
  V spread{};
  for_images(l, first, [&](int64_t image) {
    V squares[4] = {};
    for_image(l, image, [&](int64_t at, auto which) {
      const V distance = L::in(x + at) - middle;
      squares[which] += distance * distance;
    });
    spread += (squares[0] + squares[1]) + (squares[2] + squares[3]);
  });
  L::out(mean) = middle;
  L::out(variance) = spread * share;
}

/// y = (x - mean) * factor + summand [+ z], with rectifier if kRelu, for one column of all images.
/// \param mean, factor, summand  kWidth numbers each
template <int kWidth, bool kSummand, bool kRelu>
inline void column_affine(const NormForward& f, int64_t first, const float* mean,
                          const float* factor, const float* summand) {
  using L = Lanes<kWidth>;
  using V = typename L::Vector;
  const V middle = L::in(mean);
  const V times = L::in(factor);
  const V plus = L::in(summand);
  const float* const x = f.x;
  const float* const z = f.z;
  float* const y = f.y;
  for_images(f.l, first, [&](int64_t image) {
    for_image(f.l, image, [&](int64_t at, auto) {
      V value = (L::in(x + at) - middle) * times + plus;
      if constexpr (kSummand) value += L::in(z + at);
      if constexpr (kRelu) value = value > 0.0F ? value : V{};  // 0 for NaN
      L::out(y + at) = value;
    });
  });
}

/// Computes the column that starts at a channel. Padding channels get mean 0 and factor 0, so that
/// padding stays zero.
template <int kWidth>
inline void forward_column(const NormForward& f, int64_t channel) {
  const int64_t first = column_start<kWidth>(f.l, channel);
  const int64_t count = std::clamp<int64_t>(f.l.channels - channel, 0, kWidth);
  // zeros for the padding channels
  float mean[kWidth] = {};
  float variance[kWidth] = {};
  float factor[kWidth] = {};
  float summand[kWidth] = {};
  if (!f.global) column_moments<kWidth>(f.l, first, f.x, mean, variance);
  for (int64_t k = 0; k < count; ++k) {
    const int64_t c = channel + k;
    if (f.global) {
      mean[k] = f.mean[c];
      variance[k] = f.variance[c];
      if (f.mean_out != nullptr) f.mean_out[c] = mean[k];
      if (f.variance_out != nullptr) f.variance_out[c] = variance[k];
    } else {
      const float old = f.momentum;
      const float now = 1.0F - f.momentum;
      if (f.mean_out != nullptr) f.mean_out[c] = f.mean[c] * old + mean[k] * now;
      if (f.variance_out != nullptr) f.variance_out[c] = f.variance[c] * old + variance[k] * now;
    }
    const float deviation = 1.0F / std::sqrt(variance[k] + f.epsilon);
    f.saved_mean[c] = mean[k];
    f.saved_deviation[c] = deviation;
    factor[k] = f.scale == nullptr ? deviation : deviation * f.scale[c];
    summand[k] = f.bias == nullptr ? 0.0F : f.bias[c];
  }
  if (f.z != nullptr) {
    f.relu ? column_affine<kWidth, true, true>(f, first, mean, factor, summand)
           : column_affine<kWidth, true, false>(f, first, mean, factor, summand);
  } else {
    f.relu ? column_affine<kWidth, false, true>(f, first, mean, factor, summand)
           : column_affine<kWidth, false, false>(f, first, mean, factor, summand);
  }
}

/// The incoming gradient at an offset.
template <int kWidth, bool kMask, bool kMore>
[[gnu::always_inline]] inline void incoming(const NormBackward& g, int64_t at,
                                            typename Lanes<kWidth>::Vector& value) {
  using L = Lanes<kWidth>;
  value = L::in(g.dy + at);
  if constexpr (kMore) value += L::in(g.more + at);
  if constexpr (kMask) value = L::in(g.y + at) > 0.0F ? value : typename L::Vector{};
}

/// If dz is requested, it is written while the sums are computed, and read again afterwards.
template <int kWidth, bool kMask, bool kMore, bool kStore>
inline void backward_column(const NormBackward& given, int64_t channel) {
  using L = Lanes<kWidth>;
  using V = typename L::Vector;
  const NormBackward g = given;  // a local copy: no store below can change it
  const int64_t first = column_start<kWidth>(g.l, channel);
  const int64_t count = std::clamp<int64_t>(g.l.channels - channel, 0, kWidth);
  float mean[kWidth] = {};
  std::copy_n(g.mean + channel, count, mean);
  const V middle = L::in(mean);
  // both sums are taken in one pass: dy and x are read once
  V total{};
  V product{};
  for_images(g.l, first, [&](int64_t image) {
    V sums[4] = {};
    V products[4] = {};
    for_image(g.l, image, [&](int64_t at, auto which) {
      V value;
      incoming<kWidth, kMask, kMore>(g, at, value);
      sums[which] += value;
      products[which] += value * (L::in(g.x + at) - middle);
      if constexpr (kStore) L::out(g.dz + at) = value;
    });
    total += (sums[0] + sums[1]) + (sums[2] + sums[3]);
    product += (products[0] + products[1]) + (products[2] + products[3]);
  });
  float dbias[kWidth];
  float dscale[kWidth];
  L::out(dbias) = total;
  L::out(dscale) = product;
  float factor[kWidth] = {};
  float shift[kWidth] = {};
  float tilt[kWidth] = {};
  const float share =
      g.constant_statistics ? 0.0F : 1.0F / static_cast<float>(g.l.outer * g.l.inner);
  for (int64_t k = 0; k < count; ++k) {
    const int64_t c = channel + k;
    const float deviation = g.deviation[c];
    g.dbias[c] = dbias[k];
    g.dscale[c] = dscale[k] * deviation;
    factor[k] = g.scale == nullptr ? deviation : deviation * g.scale[c];
    shift[k] = g.dbias[c] * share;
    tilt[k] = deviation * g.dscale[c] * share;
  }
  if (g.dx == nullptr) return;
  const V times = L::in(factor);
  const V less = L::in(shift);
  const V slope = L::in(tilt);
  for_images(g.l, first, [&](int64_t image) {
    for_image(g.l, image, [&](int64_t at, auto) {
      V value;
      if constexpr (kStore) {
        value = L::in(g.dz + at);
      } else {
        incoming<kWidth, kMask, kMore>(g, at, value);
      }
      L::out(g.dx + at) = times * (value - less - (L::in(g.x + at) - middle) * slope);
    });
  });
}

/// Selects the instance of backward_column() for the operands: its inner loops have no branches.
template <int kWidth, bool kMask, bool kMore>
inline void backward_column(const NormBackward& g, int64_t channel) {
  g.dz != nullptr ? backward_column<kWidth, kMask, kMore, true>(g, channel)
                  : backward_column<kWidth, kMask, kMore, false>(g, channel);
}

template <int kWidth>
inline void backward_column(const NormBackward& g, int64_t channel) {
  if (g.y != nullptr) {
    g.more != nullptr ? backward_column<kWidth, true, true>(g, channel)
                      : backward_column<kWidth, true, false>(g, channel);
  } else {
    g.more != nullptr ? backward_column<kWidth, false, true>(g, channel)
                      : backward_column<kWidth, false, false>(g, channel);
  }
}

/// The columns [begin, end) of norm_column_count().
inline void norm_forward(const NormForward& f, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i) {
    norm_column_width(f.l) == 16 ? forward_column<16>(f, i * 16) : forward_column<8>(f, i * 8);
  }
}
inline void norm_backward(const NormBackward& g, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i) {
    norm_column_width(g.l) == 16 ? backward_column<16>(g, i * 16) : backward_column<8>(g, i * 8);
  }
}

}  // namespace detail
}  // namespace millrace::kernels
