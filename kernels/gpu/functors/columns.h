#pragma once

#include <cstdint>

// Functors that copy the windows of images to matrices, and add such matrices to images. They turn
// convolutions of volumes into products, and are ops themselves (unfold, im2sequence).
namespace millrace::gpu {

/// The windows along one spatial dim.
struct WindowSide {
  int64_t size = 1;      ///< of the image along the dim
  int64_t places = 1;    ///< positions of the window
  int64_t kernel = 1;    ///< elements of a window
  int64_t stride = 1;    ///< distance of the positions
  int64_t dilation = 1;  ///< distance of the elements of a window
  int64_t before = 0;    ///< padding before the image
};

/// Of the three spatial dims of an image: the number of its elements, and of the positions of a
/// window.
template <typename Side>
constexpr int64_t count_elements(const Side (&sides)[3]) {
  return sides[0].size * sides[1].size * sides[2].size;
}
template <typename Side>
constexpr int64_t count_places(const Side (&sides)[3]) {
  return sides[0].places * sides[1].places * sides[2].places;
}

/// The windows of float images [batch, channels, depth, height, width] as one matrix for each
/// image. An element of a window is a channel and a tap, in row-major order.
struct WindowMatrix {
  WindowSide sides[3];       ///< depth, height, width; dims that an image lacks have size 1
  int64_t channels = 1;      ///< of an image
  bool place_first = false;  ///< matrices are [places, elements], else [elements, places]

  /// Number of elements of one channel of an image.
  [[nodiscard]] constexpr int64_t plane() const { return count_elements(sides); }
  /// Number of positions of the window.
  [[nodiscard]] constexpr int64_t places() const { return count_places(sides); }
  /// Number of elements of a window in one channel.
  [[nodiscard]] constexpr int64_t taps() const {
    return sides[0].kernel * sides[1].kernel * sides[2].kernel;
  }
  /// Number of elements of a window.
  [[nodiscard]] constexpr int64_t elements() const { return channels * taps(); }
  /// True if the matrix of an image is the image: each window is a pixel.
  [[nodiscard]] constexpr bool is_image() const {
    for (const WindowSide& s : sides) {
      if (s.kernel != 1 || s.stride != 1 || s.before != 0 || s.size != s.places) return false;
    }
    return !place_first;
  }
};

/// Element i of the matrices of all images; 0 in the padding.
struct CopyWindows {
  WindowMatrix of;      ///< shapes
  const float* images;  ///< [batch, channels, depth, height, width]
  float* matrix;        ///< [batch, elements, places], or as place_first says
  constexpr void operator()(int64_t i) const {
    const int64_t places = of.places();
    const int64_t elements = of.elements();
    const int64_t n = i / (elements * places);
    const int64_t rest = i % (elements * places);
    const int64_t element = of.place_first ? rest % elements : rest / places;
    int64_t place = of.place_first ? rest / elements : rest % places;
    int64_t tap = element % of.taps();
    int64_t from = (n * of.channels + element / of.taps()) * of.plane();
    int64_t step = 1;
    bool inside = true;
    for (int d = 2; d >= 0; --d) {
      const WindowSide& s = of.sides[d];
      const int64_t at = place % s.places * s.stride + tap % s.kernel * s.dilation - s.before;
      inside = inside && at >= 0 && at < s.size;
      from += at * step;
      step *= s.size;
      place /= s.places;
      tap /= s.kernel;
    }
    matrix[i] = inside ? images[from] : 0.0F;
  }
};

/// Element i of images: the sum of what the windows that contain it have there. The inverse of the
/// direction of CopyWindows, and its gradient.
struct AddWindows {
  WindowMatrix of;      ///< shapes
  const float* matrix;  ///< [batch, elements, places], or as place_first says
  float* images;        ///< [batch, channels, depth, height, width]
  /// The position of the window whose tap is at an element of the dim; -1 if there is none.
  [[nodiscard]] static constexpr int64_t place_of(const WindowSide& s, int64_t at, int64_t tap) {
    const int64_t start = at + s.before - tap * s.dilation;
    if (start < 0 || start % s.stride != 0 || start / s.stride >= s.places) return -1;
    return start / s.stride;
  }
  constexpr void operator()(int64_t i) const {
    const auto& [depth, height, width] = of.sides;
    const int64_t x = i % width.size;
    const int64_t y = i / width.size % height.size;
    const int64_t z = i / (width.size * height.size) % depth.size;
    const int64_t channel = i / of.plane();
    const int64_t n = channel / of.channels;
    const int64_t elements = of.elements();
    const int64_t places = of.places();
    const float* const from = matrix + n * elements * places;
    int64_t element = channel % of.channels * of.taps();
    double sum = 0;
    // No other call writes this element: windows that overlap need no atomic additions.
    for (int64_t kz = 0; kz < depth.kernel; ++kz) {
      const int64_t pz = place_of(depth, z, kz);
      for (int64_t ky = 0; ky < height.kernel; ++ky) {
        const int64_t py = place_of(height, y, ky);
        for (int64_t kx = 0; kx < width.kernel; ++kx, ++element) {
          const int64_t px = place_of(width, x, kx);
          if (pz < 0 || py < 0 || px < 0) continue;
          const int64_t place = (pz * height.places + py) * width.places + px;
          sum += static_cast<double>(
              from[of.place_first ? place * elements + element : element * places + place]);
        }
      }
    }
    images[i] = static_cast<float>(sum);
  }
};

}  // namespace millrace::gpu
