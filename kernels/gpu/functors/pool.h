#pragma once

#include <cstdint>
#include <limits>

// Functors of two-dimensional poolings of f32 images with the channels first. The windows follow
// the same rules as on CPU (kernels/cpu/nn/pool_plan.h).
namespace millrace::gpu {

/// The windows of a pooling along one spatial dim.
struct PoolSide {
  int64_t size;    ///< of the image along the dim
  int64_t places;  ///< output positions
  int64_t kernel;  ///< size of a window
  int64_t stride;  ///< distance of the windows
  int64_t before;  ///< padding before the image
  bool shared;     ///< adaptive: output positions share the image
  bool exclusive;  ///< averages ignore padding

  /// The elements of the image that a window covers: first, and one past the last.
  [[nodiscard]] constexpr int64_t begin(int64_t place) const {
    if (shared) return place * size / places;
    const int64_t start = place * stride - before;
    return start < 0 ? 0 : start;
  }
  [[nodiscard]] constexpr int64_t end(int64_t place) const {
    if (shared) return ((place + 1) * size + places - 1) / places;
    const int64_t stop = place * stride - before + kernel;
    return stop < size ? stop : size;
  }
  /// Divisor of an average; padding after the image counts up to the amount of padding before it.
  [[nodiscard]] constexpr int64_t count(int64_t place) const {
    if (shared || exclusive) return end(place) - begin(place);
    const int64_t start = place * stride - before;
    const int64_t stop = start + kernel < size + before ? start + kernel : size + before;
    return stop - start;
  }
  /// Output positions whose windows may contain an element: the first, and one past the last.
  [[nodiscard]] constexpr int64_t first_place(int64_t at) const {
    if (shared) return at * places / size;
    const int64_t reach = at + before - kernel + 1;
    return reach <= 0 ? 0 : (reach + stride - 1) / stride;
  }
  [[nodiscard]] constexpr int64_t end_place(int64_t at) const {
    const int64_t last =
        shared ? ((at + 1) * places + size - 1) / size : (at + before) / stride + 1;
    return last < places ? last : places;
  }
};

/// Where maxima start, as on the processor: the result of an empty window, and of one with NaN
/// only. NaN never replaces a maximum.
inline constexpr float kLowest = -std::numeric_limits<float>::max();

/// Maximum or average of each window; planes are images times channels.
struct PoolWindows {
  PoolSide height;  ///< rows of the image
  PoolSide width;   ///< columns of the image
  bool max;         ///< else the average

  /// A result: its position, and the image that it comes from.
  struct Place {
    int64_t h;
    int64_t w;
    const float* plane;
  };
  /// \param x  [planes, height, width]
  [[nodiscard]] constexpr Place place(const float* x, int64_t i) const {
    const int64_t w = i % width.places;
    const int64_t h = i / width.places % height.places;
    return {h, w, x + i / (width.places * height.places) * height.size * width.size};
  }
  /// The maximum or average.
  [[nodiscard]] constexpr float of(const Place& place) const {
    const auto& [h, w, plane] = place;
    float most = kLowest;
    double sum = 0;
    for (int64_t y = height.begin(h); y < height.end(h); ++y) {
      for (int64_t x = width.begin(w); x < width.end(w); ++x) {
        const float value = plane[y * width.size + x];
        most = value > most ? value : most;
        sum += static_cast<double>(value);
      }
    }
    if (max) return most;
    return static_cast<float>(sum / static_cast<double>(height.count(h) * width.count(w)));
  }
  /// The index in the plane of the first element of the window that equals of(); -1 if there is
  /// none.
  [[nodiscard]] constexpr int32_t first_maximum(const Place& place) const {
    const auto& [h, w, plane] = place;
    int64_t found = -1;
    float most = kLowest;
    for (int64_t y = height.begin(h); y < height.end(h); ++y) {
      for (int64_t x = width.begin(w); x < width.end(w); ++x) {
        const int64_t at = y * width.size + x;
        if (!(plane[at] > most || (found < 0 && plane[at] == most))) continue;
        most = plane[at];
        found = at;
      }
    }
    return static_cast<int32_t>(found);
  }
};

/// Element i of the result.
struct PoolForward {
  PoolWindows windows;  ///< of an image
  const float* x;       ///< [planes, height, width]
  float* out;           ///< [planes, places of height, places of width]
  constexpr void operator()(int64_t i) const { out[i] = windows.of(windows.place(x, i)); }
};

/// Where result i comes from: for PoolBackward of a maximum.
struct PoolFirstMaximum {
  PoolWindows windows;  ///< of an image with less than 2^31 elements
  const float* x;       ///< [planes, height, width]
  int32_t* index;       ///< with the dims of the result; -1 for an empty window
  constexpr void operator()(int64_t i) const {
    index[i] = windows.first_maximum(windows.place(x, i));
  }
};

/// Element i of the gradient of the input, summed over the windows that contain it.
struct PoolBackward {
  PoolWindows windows;   ///< of an image
  const int32_t* index;  ///< result of PoolFirstMaximum; not read for an average
  const float* dout;     ///< with the dims of the result
  float* dx;             ///< with the dims of the image
  constexpr void operator()(int64_t i) const {
    const PoolSide& height = windows.height;
    const PoolSide& width = windows.width;
    const int64_t at_x = i % width.size;
    const int64_t at_y = i / width.size % height.size;
    const int64_t plane = i / (width.size * height.size);
    const int64_t results = plane * height.places * width.places;
    double sum = 0;
    // No other call writes this element: windows that overlap need no atomic additions.
    for (int64_t h = height.first_place(at_y); h < height.end_place(at_y); ++h) {
      if (at_y < height.begin(h) || at_y >= height.end(h)) continue;
      for (int64_t w = width.first_place(at_x); w < width.end_place(at_x); ++w) {
        if (at_x < width.begin(w) || at_x >= width.end(w)) continue;
        const int64_t at = results + h * width.places + w;
        if (!windows.max) {
          sum +=
              static_cast<double>(dout[at]) / static_cast<double>(height.count(h) * width.count(w));
        } else if (index[at] == at_y * width.size + at_x) {
          sum += static_cast<double>(dout[at]);
        }
      }
    }
    dx[i] = static_cast<float>(sum);
  }
};

}  // namespace millrace::gpu
