#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "kernels/gpu/functors/sampling.h"

// Functors of ops that pool regions of float images: roi_align, roi_pool and psroi_pool. A region
// whose coordinates are not finite, or beyond 1e6 after scaling, makes what it contributes to NaN:
// the processor reports it as an error.
namespace millrace::gpu {

/// What is written for regions that cannot be used.
inline constexpr float kNoRegion = std::numeric_limits<float>::quiet_NaN();

/// Images, and the regions of each. Gradients are computed plane by plane: one thread adds what the
/// regions of an image give to one of its channels.
struct RegionsOfImages {
  int64_t batch;           ///< images
  int64_t channels;        ///< of an image
  int64_t height;          ///< pixels
  int64_t width;           ///< pixels
  int64_t pooled[2];       ///< cells of a region: rows, columns
  float scale;             ///< size of the images / size of what the regions refer to
  const int32_t* offsets;  ///< [batch + 1]: first region of each image, and the end
  const float* rois;       ///< [regions, 4]: left, top, right, bottom

  /// Pixels of a plane.
  [[nodiscard]] constexpr int64_t pixels() const { return height * width; }
  /// Cells of a region.
  [[nodiscard]] constexpr int64_t cells() const { return pooled[0] * pooled[1]; }
  /// The image of a region.
  [[nodiscard]] constexpr int64_t image_of(int64_t region) const {
    int64_t n = 0;
    while (n + 1 < batch && offsets[n + 1] <= region) ++n;
    return n;
  }
  /// False if the coordinates of a region cannot be used.
  [[nodiscard]] constexpr bool is_usable(int64_t region) const {
    for (int k = 0; k < 4; ++k) {
      if (!(std::fabs(static_cast<double>(rois[4 * region + k]) * static_cast<double>(scale)) <=
            1e6))
        return false;
    }
    return true;
  }
  /// The plane that element i of a result with as many channels as the images reads.
  [[nodiscard]] constexpr const float* plane_of(const float* x, int64_t i) const {
    return x + (image_of(i / (cells() * channels)) * channels + i / cells() % channels) * pixels();
  }
  /// Computes plane i of a gradient: zeros, then add(plane, region) for each region of its image,
  /// in their order. The whole plane becomes NaN if a region cannot be used or add returns false.
  template <typename Add>
  constexpr void fill_plane(float* dx, int64_t i, const Add& add) const {
    float* const plane = dx + i * pixels();
    set_all(plane, pixels(), 0.0F);
    const int64_t n = i / channels;
    bool good = true;
    for (int64_t r = offsets[n]; r < offsets[n + 1]; ++r)
      good = good && is_usable(r) && add(plane, r);
    if (!good) set_all(plane, pixels(), kNoRegion);
  }
};

/// The points at which roi_align samples a region.
struct AlignedRegion {
  float start[2];    ///< top, left
  float cell[2];     ///< size of a cell: height, width
  int64_t count[2];  ///< points of a cell: rows, columns

  /// \param shift        subtracted from coordinates
  /// \param whole_pixel  regions have at least the size of a pixel
  /// \param sampling     points of a cell along a dim; below 1: one for each pixel
  constexpr AlignedRegion(const RegionsOfImages& of, int64_t region, float shift, bool whole_pixel,
                          int64_t sampling)
      : start{}, cell{}, count{} {
    const float* const roi = of.rois + 4 * region;
    for (int d = 0; d < 2; ++d) {
      start[d] = roi[1 - d] * of.scale - shift;
      float size = roi[3 - d] * of.scale - shift - start[d];
      if (whole_pixel && size < 1.0F) size = 1.0F;
      cell[d] = size / static_cast<float>(of.pooled[d]);
      count[d] = sampling > 0 ? sampling : static_cast<int64_t>(std::ceil(cell[d]));
      if (count[d] < 0) count[d] = 0;
    }
  }
  /// Coordinate of point k of a cell.
  [[nodiscard]] constexpr float at(int d, int64_t of_cell, int64_t k) const {
    return start[d] + static_cast<float>(of_cell) * cell[d] +
           (static_cast<float>(k) + 0.5F) * cell[d] / static_cast<float>(count[d]);
  }
  /// 1 / points of a cell.
  [[nodiscard]] constexpr float share() const {
    const int64_t all = count[0] * count[1];
    return 1.0F / static_cast<float>(all < 1 ? 1 : all);
  }
};

/// The pixels before and after a coordinate, and the share of the latter.
struct PixelPair {
  int64_t low;   ///< the one before, or the last one of the image
  int64_t high;  ///< the one after, or the same
  float part;    ///< of `high`
  /// \param at    coordinate; below 0 it is moved to the first pixel
  /// \param size  pixels along the dim
  constexpr PixelPair(float at, int64_t size) : low(0), high(0), part(0) {
    const float inside = at < 0.0F ? 0.0F : at;
    low = static_cast<int64_t>(inside);
    if (low >= size - 1) {
      low = size - 1;
      high = low;
      return;
    }
    high = low + 1;
    part = inside - static_cast<float>(low);
  }
};

/// Calls body(pixel, weight) for the pixels around the points of a cell.
template <typename Body>
constexpr void around_points(const RegionsOfImages& of, const AlignedRegion& region, int64_t row,
                             int64_t column, const Body& body) {
  for (int64_t i = 0; i < region.count[0]; ++i) {
    const float y = region.at(0, row, i);
    if (y < -1.0F || y > static_cast<float>(of.height)) continue;
    const PixelPair v(y, of.height);
    for (int64_t k = 0; k < region.count[1]; ++k) {
      const float x = region.at(1, column, k);
      if (x < -1.0F || x > static_cast<float>(of.width)) continue;
      const PixelPair h(x, of.width);
      body(v.low * of.width + h.low, (1 - v.part) * (1 - h.part));
      body(v.low * of.width + h.high, (1 - v.part) * h.part);
      body(v.high * of.width + h.low, v.part * (1 - h.part));
      body(v.high * of.width + h.high, v.part * h.part);
    }
  }
}

/// Element i of the result of roi_align.
struct AlignRegions {
  RegionsOfImages of;  ///< images and regions
  const float* x;      ///< [batch, channels, height, width]
  float* out;          ///< [regions, channels, pooled]
  int64_t sampling;    ///< of AlignedRegion
  bool aligned;        ///< coordinates refer to the centers of pixels
  constexpr void operator()(int64_t i) const {
    const int64_t r = i / (of.cells() * of.channels);
    if (!of.is_usable(r)) {
      out[i] = kNoRegion;
      return;
    }
    const AlignedRegion region(of, r, aligned ? 0.5F : 0.0F, !aligned, sampling);
    const float* const plane = of.plane_of(x, i);
    double sum = 0;
    around_points(of, region, i / of.pooled[1] % of.pooled[0], i % of.pooled[1],
                  [&](int64_t pixel, float weight) {
                    sum += static_cast<double>(weight) * static_cast<double>(plane[pixel]);
                  });
    out[i] = static_cast<float>(sum) * region.share();
  }
};

/// Plane i of its gradient. As in the original, aligned regions also have at least one pixel here.
struct AlignRegionsBack {
  RegionsOfImages of;  ///< images and regions
  const float* dout;   ///< [regions, channels, pooled]
  float* dx;           ///< [batch, channels, height, width]
  int64_t sampling;    ///< of AlignedRegion
  bool aligned;        ///< coordinates refer to the centers of pixels
  constexpr void operator()(int64_t i) const {
    of.fill_plane(dx, i, [&](float* plane, int64_t r) {
      const AlignedRegion region(of, r, aligned ? 0.5F : 0.0F, true, sampling);
      const float* const g = dout + (r * of.channels + i % of.channels) * of.cells();
      for (int64_t cell = 0; cell < of.cells(); ++cell) {
        const float value = g[cell] * region.share();
        around_points(of, region, cell / of.pooled[1], cell % of.pooled[1],
                      [&](int64_t pixel, float weight) { plane[pixel] += value * weight; });
      }
      return true;
    });
  }
};

/// The pixels of a cell of roi_pool or psroi_pool: rows [begin[0], end[0]), columns [begin[1],
/// end[1]).
struct CellPixels {
  int64_t begin[2];  ///< row, column
  int64_t end[2];    ///< one past the last
  /// \param of_positions  psroi_pool: regions are rounded before they are scaled
  constexpr CellPixels(const RegionsOfImages& of, int64_t region, int64_t row, int64_t column,
                       bool of_positions)
      : begin{}, end{} {
    const float* const roi = of.rois + 4 * region;
    const int64_t cell[2] = {row, column};
    const int64_t size[2] = {of.height, of.width};
    for (int d = 0; d < 2; ++d) {
      float start = 0;
      float extent = 0;
      if (of_positions) {
        start = std::round(roi[1 - d]) * of.scale;
        extent = (std::round(roi[3 - d]) + 1) * of.scale - start;
        if (extent < 0.1F) extent = 0.1F;
      } else {
        start = std::round(roi[1 - d] * of.scale);
        extent = std::round(roi[3 - d] * of.scale) - start + 1;
        if (extent < 1.0F) extent = 1.0F;
      }
      const float step = extent / static_cast<float>(of.pooled[d]);
      // rounded before the sum, as on the processor
      const auto low = static_cast<double>(static_cast<float>(cell[d]) * step);
      const auto high = static_cast<double>(static_cast<float>(cell[d] + 1) * step);
      const auto from = static_cast<float>(low + static_cast<double>(start));
      const auto to = static_cast<float>(high + static_cast<double>(start));
      begin[d] = within(static_cast<int64_t>(std::floor(from)), size[d]);
      end[d] = within(static_cast<int64_t>(std::ceil(to)), size[d]);
      if (end[d] < begin[d]) end[d] = begin[d];
    }
  }
  /// A position moved into [0, size].
  [[nodiscard]] static constexpr int64_t within(int64_t at, int64_t size) {
    return at < 0 ? 0 : at > size ? size : at;
  }
  /// Number of pixels.
  [[nodiscard]] constexpr int64_t count() const {
    return (end[0] - begin[0]) * (end[1] - begin[1]);
  }
  /// Calls body(pixel of the plane) for all of them, row by row.
  template <typename Body>
  constexpr void visit(int64_t width, const Body& body) const {
    for (int64_t y = begin[0]; y < end[0]; ++y) {
      for (int64_t x = begin[1]; x < end[1]; ++x) body(y * width + x);
    }
  }
};

/// Element i of the result of roi_pool: the largest pixel of a cell, 0 for an empty one.
struct LargestOfRegions {
  RegionsOfImages of;  ///< images and regions
  const float* x;      ///< [batch, channels, height, width]
  float* out;          ///< [regions, channels, pooled]
  int64_t* argmax;     ///< where it is in its plane, -1: nowhere; null: not wanted
  constexpr void operator()(int64_t i) const {
    const int64_t r = i / (of.cells() * of.channels);
    int64_t found = -1;
    float most = kNoRegion;
    if (of.is_usable(r)) {
      const CellPixels cell(of, r, i / of.pooled[1] % of.pooled[0], i % of.pooled[1], false);
      const float* const plane = of.plane_of(x, i);
      most = cell.count() == 0 ? 0.0F : -std::numeric_limits<float>::max();
      cell.visit(of.width, [&](int64_t pixel) {
        if (!(plane[pixel] > most)) return;
        found = pixel;
        most = plane[pixel];
      });
    }
    out[i] = most;
    if (argmax != nullptr) argmax[i] = found;
  }
};

/// Plane i of its gradient; NaN if a position is none of the plane.
struct LargestOfRegionsBack {
  RegionsOfImages of;     ///< images and regions
  const int64_t* argmax;  ///< by LargestOfRegions
  const float* dout;      ///< [regions, channels, pooled]
  float* dx;              ///< [batch, channels, height, width]
  constexpr void operator()(int64_t i) const {
    of.fill_plane(dx, i, [&](float* plane, int64_t r) {
      const int64_t first = (r * of.channels + i % of.channels) * of.cells();
      for (int64_t at = first; at < first + of.cells(); ++at) {
        if (argmax[at] < -1 || argmax[at] >= of.pixels()) return false;
        if (argmax[at] >= 0) plane[argmax[at]] += dout[at];
      }
      return true;
    });
  }
};

/// Element i of the result of psroi_pool: the average of a cell of the channel that belongs to it,
/// 0 for an empty one. The images have a channel for each channel of the result and cell.
struct AverageOfPositions {
  RegionsOfImages of;    ///< images and regions
  int64_t out_channels;  ///< of the result
  const float* x;        ///< [batch, channels, height, width]
  float* out;            ///< [regions, out_channels, pooled]
  constexpr void operator()(int64_t i) const {
    const int64_t r = i / (of.cells() * out_channels);
    if (!of.is_usable(r)) {
      out[i] = kNoRegion;
      return;
    }
    const CellPixels cell(of, r, i / of.pooled[1] % of.pooled[0], i % of.pooled[1], true);
    const float* const plane =
        x + (of.image_of(r) * of.channels + i % (of.cells() * out_channels)) * of.pixels();
    double sum = 0;
    cell.visit(of.width, [&](int64_t pixel) { sum += static_cast<double>(plane[pixel]); });
    out[i] = cell.count() == 0 ? 0.0F : static_cast<float>(sum / static_cast<double>(cell.count()));
  }
};

/// Plane i of its gradient.
struct AverageOfPositionsBack {
  RegionsOfImages of;  ///< images and regions
  const float* dout;   ///< [regions, channels of the result, pooled]
  float* dx;           ///< [batch, channels, height, width]
  constexpr void operator()(int64_t i) const {
    of.fill_plane(dx, i, [&](float* plane, int64_t r) {
      const int64_t c = i % of.channels;
      const CellPixels cell(of, r, c / of.pooled[1] % of.pooled[0], c % of.pooled[1], true);
      const auto count = static_cast<float>(cell.count() > 0 ? cell.count() : 1);
      const float value = dout[r * of.channels + c] / count;
      cell.visit(of.width, [&](int64_t pixel) { plane[pixel] += value; });
      return true;
    });
  }
};

}  // namespace millrace::gpu
