#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "kernels/cpu/lane_sum.h"
#include "kernels/cpu/nn/pool_plan.h"
#include "kernels/device.h"

// Loops of poolings. Lanes are adjacent output positions of a line, or the channels of a pixel;
// operations on several lanes at once are vectorized.
namespace millrace::kernels {

/// How a pooling joins elements: by maximum, starting from the lowest float, also for float64 (the
/// result of an empty window, as in the original), or by sum, starting from 0. A NaN never replaces
/// a maximum, for comparisons with it are false.
template <typename T, bool kMax>
struct PoolRule {
  static constexpr T kStart = kMax ? static_cast<T>(std::numeric_limits<float>::lowest()) : T{0};
  static T join(T so_far, T value) {
    if constexpr (kMax) return value > so_far ? value : so_far;
    return so_far + value;
  }
};

/// Calls body(step) with the step as a compile-time constant if it is 1 or 2.
/// A constant lets the compiler use vector loads; other steps gather.
template <typename Body>
void with_step(int64_t step, Body&& body) {
  if (step == 1) return body(std::integral_constant<int64_t, 1>{});
  if (step == 2) return body(std::integral_constant<int64_t, 2>{});
  body(step);
}

/// Calls line(index of a line of pixels in the image) for the lines of the window of position (d,
/// h).
template <typename Line>
void for_lines(const PoolPlan& p, int64_t d, int64_t h, Line&& line) {
  const PoolAxis& depth = p.axes[0];
  const PoolAxis& height = p.axes[1];
  const auto di = static_cast<size_t>(d);
  const auto hi = static_cast<size_t>(h);
  for (int64_t z = depth.begin[di]; z < depth.end[di]; ++z) {
    for (int64_t y = height.begin[hi]; y < height.end[hi]; ++y) line(z * height.size + y);
  }
}

/// Calls pixel(offset of the pixel in the image, in elements) for the pixels of the window of
/// position (d, h, w), channels last.
template <typename Pixel>
void for_pixels(const PoolPlan& p, int64_t d, int64_t h, int64_t w, Pixel&& pixel) {
  const PoolAxis& width = p.axes[2];
  const int64_t begin = width.begin[static_cast<size_t>(w)];
  const int64_t end = width.end[static_cast<size_t>(w)];
  for_lines(p, d, h, [&](int64_t line) {
    for (int64_t x = begin; x < end; ++x) pixel((line * width.size + x) * p.channels);
  });
}

/// The result for a window that covers all `count` elements of a plane.
template <typename T, bool kMax>
T pool_whole(const T* image, int64_t count) {
  if constexpr (kMax) {
    T best = std::numeric_limits<T>::lowest();
    for (int64_t i = 0; i < count; ++i) best = PoolRule<T, true>::join(best, image[i]);
    return best;
  }
  return lane_sum<T>(count, [image](int64_t i) { return image[i]; }) / static_cast<T>(count);
}

/// Divides the sums of positions (d, h, w), w in [begin, end), by the counts; each position has
/// `lanes` elements.
/// \param first  result of position (d, h, begin)
template <typename T>
void divide_by_counts(const PoolPlan& p, int64_t d, int64_t h, int64_t begin, int64_t end,
                      int64_t lanes, T* first) {
  const int64_t lines =
      p.axes[0].count[static_cast<size_t>(d)] * p.axes[1].count[static_cast<size_t>(h)];
  for (int64_t w = begin; w < end; ++w) {
    const T count = static_cast<T>(lines * p.axes[2].count[static_cast<size_t>(w)]);
    for (int64_t i = 0; i < lanes; ++i) first[(w - begin) * lanes + i] /= count;
  }
}

/// True if the complete windows of a row of output positions have two lines of two elements each,
/// and do not overlap along the width: then a loop handles all four elements of a window at once.
/// \param h  the row
inline bool has_windows_of_four(const PoolPlan& p, int64_t h) {
  const PoolAxis& width = p.axes[2];
  const auto at = static_cast<size_t>(h);
  return width.kernel == 2 && width.stride == 2 && p.axes[0].size == 1 &&
         p.axes[1].end[at] - p.axes[1].begin[at] == 2;
}

/// Joins the elements of such windows with out[0..n).
/// \param x     the upper left element of the first window
/// \param line  elements from one line of the plane to the next
template <typename Rule, typename T>
void join_four(int64_t n, const T* __restrict x, int64_t line, T* __restrict out) {
  const T* __restrict const below = x + line;
  for (int64_t i = 0; i < n; ++i) {
    const T upper = Rule::join(Rule::join(out[i], x[2 * i]), x[2 * i + 1]);
    out[i] = Rule::join(Rule::join(upper, below[2 * i]), below[2 * i + 1]);
  }
}

/// Joins the complete windows of a row of output positions with `out`.
template <typename Rule, typename T>
void join_whole(const PoolPlan& p, int64_t d, int64_t h, const T* image, T* out) {
  const PoolAxis& width = p.axes[2];
  if (width.whole_begin >= width.whole_end) return;
  if (has_windows_of_four(p, h)) {
    const int64_t first = p.axes[1].begin[static_cast<size_t>(h)] * width.size +
                          width.whole_begin * width.stride - width.before;
    join_four<Rule>(width.whole_end - width.whole_begin, image + first, width.size,
                    out + width.whole_begin);
    return;
  }
  for_lines(p, d, h, [&](int64_t line) {
    with_step(width.stride, [&](auto step) {
      for (int64_t k = 0; k < width.kernel; ++k) {
        const T* const from = image + line * width.size + k - width.before;
        for (int64_t w = width.whole_begin; w < width.whole_end; ++w)
          out[w] = Rule::join(out[w], from[w * step]);
      }
    });
  });
}

/// The same for windows that the border clips.
template <typename Rule, typename T>
void join_clipped(const PoolPlan& p, int64_t d, int64_t h, const T* image, T* out) {
  const PoolAxis& width = p.axes[2];
  for_lines(p, d, h, [&](int64_t line) {
    const T* const row = image + line * width.size;
    for (int64_t w = 0; w < width.places; ++w) {
      if (w == width.whole_begin) w = width.whole_end;
      if (w >= width.places) break;
      const auto at = static_cast<size_t>(w);
      for (int64_t x = width.begin[at]; x < width.end[at]; ++x) out[w] = Rule::join(out[w], row[x]);
    }
  });
}

/// One channel of one image.
/// \param image  [depth, height, width]
/// \param out    [places of depth, of height, of width], overwritten
template <typename T, bool kMax>
void pool_plane(const PoolPlan& p, const T* image, T* out) {
  using Rule = PoolRule<T, kMax>;
  const PoolAxis& width = p.axes[2];
  if (p.one_window) {
    *out = pool_whole<T, kMax>(image, p.size());
    return;
  }
  for (int64_t d = 0; d < p.axes[0].places; ++d) {
    for (int64_t h = 0; h < p.axes[1].places; ++h, out += width.places) {
      std::fill_n(out, width.places, Rule::kStart);
      join_whole<Rule>(p, d, h, image, out);
      join_clipped<Rule>(p, d, h, image, out);
      if constexpr (!kMax) divide_by_counts(p, d, h, 0, width.places, 1, out);
    }
  }
}

/// A register of adjacent channels. Stored is for memory at any alignment of T.
template <typename T>
struct PoolVector {
  using Type [[gnu::vector_size(32)]] = T;
  using Stored [[gnu::vector_size(32), gnu::aligned(alignof(T)), gnu::may_alias]] = T;
  static constexpr int64_t kLanes = 32 / sizeof(T);

  static const Stored& in(const T* at) { return *reinterpret_cast<const Stored*>(at); }
  static Stored& out(T* at) { return *reinterpret_cast<Stored*>(at); }
  /// True if the channels are one or two registers, as in the blocks of libraries.
  static bool fits(int64_t channels) { return channels == kLanes || channels == 2 * kLanes; }
};

/// pool_pixels() for channels that fit PoolVector, before averages are divided.
template <typename T, bool kMax>
void pool_vectors(const PoolPlan& p, const T* image, int64_t d, int64_t h, T* out) {
  using Vector = PoolVector<T>;
  for (int64_t w = 0; w < p.axes[2].places; ++w) {
    for (int64_t c = 0; c < p.channels; c += Vector::kLanes) {
      typename Vector::Type joined = PoolRule<T, kMax>::kStart + typename Vector::Type{};
      for_pixels(p, d, h, w, [&](int64_t at) {
        const typename Vector::Type value = Vector::in(image + at + c);
        if constexpr (kMax) {
          joined = value > joined ? value : joined;
        } else {
          joined += value;
        }
      });
      Vector::out(out + w * p.channels + c) = joined;
    }
  }
}

/// All channels of the output positions of one line of one image, channels last.
/// \param image  [depth, height, width, channels]
/// \param d, h   output position of the line
/// \param out    [places of width, channels], overwritten
template <typename T, bool kMax>
void pool_pixels(const PoolPlan& p, const T* image, int64_t d, int64_t h, T* out) {
  using Rule = PoolRule<T, kMax>;
  const PoolAxis& width = p.axes[2];
  const int64_t channels = p.channels;
  if (PoolVector<T>::fits(channels)) {
    pool_vectors<T, kMax>(p, image, d, h, out);
    if constexpr (!kMax) divide_by_counts(p, d, h, 0, width.places, channels, out);
    return;
  }
  std::fill_n(out, width.places * channels, Rule::kStart);
  for_lines(p, d, h, [&](int64_t line) {
    for (int64_t w = 0; w < width.places; ++w) {
      const auto at = static_cast<size_t>(w);
      T* const to = out + w * channels;
      for (int64_t x = width.begin[at]; x < width.end[at]; ++x) {
        const T* const from = image + (line * width.size + x) * channels;
        for (int64_t c = 0; c < channels; ++c) to[c] = Rule::join(to[c], from[c]);
      }
    }
  });
  if constexpr (!kMax) divide_by_counts(p, d, h, 0, width.places, channels, out);
}

}  // namespace millrace::kernels
