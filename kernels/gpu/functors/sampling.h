#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

// Functors of ops that sample float images between pixels: grid_sampler and the ops that pool
// regions. Gradients of images are computed plane by plane, because points are where data says:
// one thread adds all that a plane receives.
namespace millrace::gpu {

/// Sets `count` floats.
constexpr void set_all(float* to, int64_t count, float value) {
  for (int64_t k = 0; k < count; ++k) to[k] = value;
}

/// A coordinate in pixels, and its derivative by the coordinate in the grid.
struct GridPlace {
  float at;     ///< in pixels; -2 is outside
  float slope;  ///< 0 where the coordinate was moved to a border
};

/// Images and points of grid_sampler.
struct SampledGrid {
  int64_t channels;    ///< of an image
  int64_t points;      ///< of an image
  int64_t size[3];     ///< depth, height, width; a flat image has depth 1
  int32_t spatial;     ///< 2 or 3: numbers of a point
  bool nearest;        ///< else linear
  bool reflects;       ///< points outside are mirrored
  bool clips;          ///< points outside are moved to the border
  bool align_corners;  ///< -1 and 1 are centers of pixels, else edges
  const float* grid;   ///< [batch, points, spatial]: x, y, z
  /// Pixels of a plane.
  [[nodiscard]] constexpr int64_t pixels() const { return size[0] * size[1] * size[2]; }

  /// Moves a coordinate into the image by mirroring it at the borders.
  [[nodiscard]] constexpr GridPlace reflected(GridPlace p, float last) const {
    const float edge = align_corners ? 0.0F : 0.5F;
    const float period = 2 * (last + 2 * edge);
    if (period == 0) return {0.0F, 0.0F};
    float distance = p.at + edge;
    if (distance < 0) p.slope = -p.slope;
    distance = std::fabs(distance);
    distance -= std::floor(distance / period) * period;
    const float rest = period - distance;
    if (distance > rest) p.slope = -p.slope;
    p.at = (rest < distance ? rest : distance) - edge;
    return p;
  }
  /// Where a coordinate of the grid is along a dim. Far outside is -2, also for NaN.
  [[nodiscard]] constexpr GridPlace place(float coordinate, int64_t extent) const {
    const auto last = static_cast<float>(extent - 1);
    const float half = static_cast<float>(align_corners ? extent - 1 : extent) / 2;
    GridPlace p{(coordinate + 1) * half - (align_corners ? 0.0F : 0.5F), half};
    if (reflects) p = reflected(p, last);
    if (clips && p.at < 0) p = {0.0F, 0.0F};
    if (clips && p.at > last) p = {last, 0.0F};
    if (!(p.at > -2 && p.at < last + 2)) p = {-2.0F, 0.0F};
    return p;
  }
  /// Calls body(pixel, weight, derivatives of the weight by depth, height, width) for the pixels
  /// around a point.
  /// \param point  number of the point in all images
  template <typename Body>
  constexpr void around(int64_t point, const Body& body) const {
    GridPlace places[3] = {{0, 0}, {0, 0}, {0, 0}};
    // loops with constant bounds: arrays are in registers
    for (int32_t d = 0; d < 3; ++d) {
      if (d >= 3 - spatial) places[d] = place(grid[point * spatial + 2 - d], size[d]);
    }
    const int32_t corners = nearest ? 1 : 1 << spatial;
    for (int32_t k = 0; k < corners; ++k) {
      float part[3] = {1, 1, 1};
      float slope[3] = {0, 0, 0};
      int64_t pixel = 0;
      bool inside = true;
      for (int32_t d = 0; d < 3; ++d) {
        int64_t at = 0;
        if (d >= 3 - spatial && nearest) {
          at = static_cast<int64_t>(std::round(places[d].at));
        } else if (d >= 3 - spatial) {
          const bool far = (k >> (2 - d) & 1) != 0;
          const float low = std::floor(places[d].at);
          at = static_cast<int64_t>(low) + (far ? 1 : 0);
          part[d] = far ? places[d].at - low : 1 - (places[d].at - low);
          slope[d] = far ? places[d].slope : -places[d].slope;
        }
        inside = inside && at >= 0 && at < size[d];
        pixel = pixel * size[d] + at;
      }
      if (inside)
        body(pixel, part[0] * part[1] * part[2], slope[0] * part[1] * part[2],
             part[0] * slope[1] * part[2], part[0] * part[1] * slope[2]);
    }
  }
};

/// Element i of the result of grid_sampler: the weighted sum of the pixels around a point, of which
/// those outside of the image count as 0.
struct SampleGrid {
  SampledGrid of;  ///< points
  const float* x;  ///< [batch, channels, size...]
  float* out;      ///< [batch, channels, points]
  constexpr void operator()(int64_t i) const {
    const int64_t plane = i / of.points;
    const float* const from = x + plane * of.pixels();
    float sum = 0;
    of.around(plane / of.channels * of.points + i % of.points,
              [&](int64_t pixel, float weight, float /*z*/, float /*y*/, float /*x*/) {
                sum += weight * from[pixel];
              });
    out[i] = sum;
  }
};

/// Plane i of the gradient of x. Points of a plane are visited in their order, so that results do
/// not depend on the device.
struct SampleGridToImage {
  SampledGrid of;     ///< points
  const float* dout;  ///< [batch, channels, points]
  float* dx;          ///< [batch, channels, size...]
  constexpr void operator()(int64_t i) const {
    float* const plane = dx + i * of.pixels();
    set_all(plane, of.pixels(), 0.0F);
    for (int64_t p = 0; p < of.points; ++p) {
      const float g = dout[i * of.points + p];
      of.around(i / of.channels * of.points + p,
                [&](int64_t pixel, float weight, float /*z*/, float /*y*/, float /*x*/) {
                  plane[pixel] += g * weight;
                });
    }
  }
};

/// The gradient of point i of the grid: by how much the pixels around it change their weights,
/// summed over the channels.
struct SampleGridToGrid {
  SampledGrid of;     ///< points
  const float* x;     ///< [batch, channels, size...]
  const float* dout;  ///< [batch, channels, points]
  float* dgrid;       ///< [batch, points, spatial]
  constexpr void operator()(int64_t i) const {
    const int64_t n = i / of.points;
    double along[3] = {0, 0, 0};  // z, y, x
    of.around(i, [&](int64_t pixel, float /*weight*/, float z, float y, float w) {
      double sum = 0;
      for (int64_t c = n * of.channels; c < (n + 1) * of.channels; ++c)
        sum += static_cast<double>(dout[c * of.points + i % of.points]) *
               static_cast<double>(x[c * of.pixels() + pixel]);
      along[0] += sum * static_cast<double>(z);
      along[1] += sum * static_cast<double>(y);
      along[2] += sum * static_cast<double>(w);
    });
    for (int32_t d = 0; d < 3; ++d) {
      if (d < of.spatial) dgrid[i * of.spatial + d] = static_cast<float>(along[2 - d]);
    }
  }
};

/// Coordinates of affine_grid along one dim, from -1 to 1.
struct GridLine {
  int64_t size;  ///< pixels
  float first;   ///< coordinate of the first one
  float step;    ///< distance of two
  /// The coordinate of a pixel.
  [[nodiscard]] constexpr float at(int64_t i) const { return first + step * static_cast<float>(i); }
};

/// The pixels of affine_grid: number k of the vector (x, y, [z], 1) of a pixel.
struct GridPixels {
  GridLine lines[3];  ///< depth, height, width; a flat image has depth 1
  int32_t spatial;    ///< 2 or 3
  /// Number of pixels.
  [[nodiscard]] constexpr int64_t count() const {
    return lines[0].size * lines[1].size * lines[2].size;
  }
  /// \param k  0: x, 1: y, then z of a volume, then 1
  [[nodiscard]] constexpr float number(int64_t pixel, int32_t k) const {
    if (k == spatial) return 1.0F;
    const int64_t w = pixel % lines[2].size;
    const int64_t h = pixel / lines[2].size % lines[1].size;
    if (k == 0) return lines[2].at(w);
    return k == 1 ? lines[1].at(h) : lines[0].at(pixel / (lines[2].size * lines[1].size));
  }
};

/// Element i of the grid of affine_grid: a row of a map times the vector of a pixel. The sum runs
/// in f32 and in the order of the processor.
struct MapGrid {
  GridPixels of;       ///< coordinates of the pixels
  const float* theta;  ///< [batch, spatial, spatial + 1]
  float* grid;         ///< [batch, pixels, spatial]
  constexpr void operator()(int64_t i) const {
    const int64_t pixel = i / of.spatial % of.count();
    const int64_t row = i / (of.count() * of.spatial) * of.spatial + i % of.spatial;
    float sum = 0;
    for (int32_t k = 0; k <= of.spatial; ++k)
      sum += theta[row * (of.spatial + 1) + k] * of.number(pixel, k);
    grid[i] = sum;
  }
};

/// Element `row` of the gradient of the maps, summed over the pixels.
struct MapGridBack {
  GridPixels of;       ///< coordinates of the pixels
  const float* dgrid;  ///< [batch, pixels, spatial]
  float* dtheta;       ///< [batch, spatial, spatial + 1]
  template <typename Team>
  constexpr void operator()(const Team& team, int64_t row) const {
    const auto k = static_cast<int32_t>(row % (of.spatial + 1));
    const int64_t d = row / (of.spatial + 1) % of.spatial;
    const int64_t n = row / (of.spatial + 1) / of.spatial;
    double sum = 0;
    for (int64_t p = team.rank(); p < of.count(); p += team.size())
      sum += static_cast<double>(dgrid[(n * of.count() + p) * of.spatial + d]) *
             static_cast<double>(of.number(p, k));
    sum = team.sum(sum);
    if (team.rank() == 0) dtheta[row] = static_cast<float>(sum);
  }
};

}  // namespace millrace::gpu
