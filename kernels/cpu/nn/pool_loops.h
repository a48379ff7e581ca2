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
      for_lines(p, d, h, [&](int64_t line) {
        const T* const row = image + line * width.size;
        with_step(width.stride, [&](auto step) {
          for (int64_t k = 0; k < width.kernel && width.whole_begin < width.whole_end; ++k) {
            const T* const from = row + k - width.before;
            for (int64_t w = width.whole_begin; w < width.whole_end; ++w)
              out[w] = Rule::join(out[w], from[w * step]);
          }
        });
        // windows that the border clips
        for (int64_t w = 0; w < width.places; ++w) {
          if (w == width.whole_begin) w = width.whole_end;
          if (w >= width.places) break;
          const auto at = static_cast<size_t>(w);
          for (int64_t x = width.begin[at]; x < width.end[at]; ++x)
            out[w] = Rule::join(out[w], row[x]);
        }
      });
      if constexpr (!kMax) divide_by_counts(p, d, h, 0, width.places, 1, out);
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
