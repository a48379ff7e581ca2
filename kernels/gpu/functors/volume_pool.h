#pragma once

#include <cstdint>

#include "kernels/gpu/functors/columns.h"
#include "kernels/gpu/functors/pool.h"

// Functors of poolings of f32 volumes, of maxima with their positions, and of ops that put elements
// at given positions. Planes are images times channels.
namespace millrace::gpu {

/// The windows of a volume; a flat image has a depth of 1.
struct PoolVolume {
  PoolSide sides[3];  ///< depth, height, width
  bool max;           ///< else the average

  /// Number of elements of a plane, and of its windows.
  [[nodiscard]] constexpr int64_t size() const { return count_elements(sides); }
  [[nodiscard]] constexpr int64_t places() const { return count_places(sides); }
};

/// Result i: the maximum or average of a window, or where the maximum is.
struct PoolVolumeForward {
  PoolVolume volume;  ///< with less than 2^31 elements
  const float* x;     ///< [planes, depth, height, width]
  float* out;         ///< [planes, places]; null: not wanted
  int32_t* index;  ///< position of the maximum in its plane, -1 if there is none; null: not wanted
  bool above;      ///< a maximum is above the lowest float; else it may be equal
  constexpr void operator()(int64_t i) const {
    const auto& [depth, height, width] = volume.sides;
    const int64_t w = i % width.places;
    const int64_t h = i / width.places % height.places;
    const int64_t d = i / (width.places * height.places) % depth.places;
    const float* const plane = x + i / volume.places() * volume.size();
    float most = kLowest;
    double sum = 0;
    int64_t found = -1;
    for (int64_t z = depth.begin(d); z < depth.end(d); ++z) {
      for (int64_t y = height.begin(h); y < height.end(h); ++y) {
        for (int64_t k = width.begin(w); k < width.end(w); ++k) {
          const int64_t at = (z * height.size + y) * width.size + k;
          const float value = plane[at];
          sum += static_cast<double>(value);
          if (!(value > most || (!above && found < 0 && value == most))) continue;
          most = value;
          found = at;
        }
      }
    }
    if (index != nullptr) index[i] = static_cast<int32_t>(found);
    if (out == nullptr) return;
    const int64_t count = depth.count(d) * height.count(h) * width.count(w);
    out[i] = volume.max ? most : static_cast<float>(sum / static_cast<double>(count));
  }
};

/// Element i of the gradient of the input, summed over the windows that contain it.
/// \tparam kMax  of maxima, else of averages
template <bool kMax>
struct PoolVolumeBackward {
  PoolVolume volume;     ///< of PoolVolumeForward
  const int32_t* index;  ///< by PoolVolumeForward; not read for an average
  const float* dout;     ///< [planes, places]
  float* dx;             ///< [planes, depth, height, width]
  /// True if the window of a place contains an element of the dim.
  [[nodiscard]] static constexpr bool covers(const PoolSide& side, int64_t place, int64_t at) {
    return at >= side.begin(place) && at < side.end(place);
  }
  constexpr void operator()(int64_t i) const {
    const auto& [depth, height, width] = volume.sides;
    const int64_t in_plane = i % volume.size();
    const float* const results = dout + i / volume.size() * volume.places();
    const int64_t at_x = in_plane % width.size;
    const int64_t at_y = in_plane / width.size % height.size;
    const int64_t at_z = in_plane / (width.size * height.size);
    double sum = 0;
    // No other call writes this element: windows that overlap need no atomic additions.
    for (int64_t d = depth.first_place(at_z); d < depth.end_place(at_z); ++d) {
      if (!covers(depth, d, at_z)) continue;
      for (int64_t h = height.first_place(at_y); h < height.end_place(at_y); ++h) {
        if (!covers(height, h, at_y)) continue;
        for (int64_t w = width.first_place(at_x); w < width.end_place(at_x); ++w) {
          if (!covers(width, w, at_x)) continue;
          const float* const g = results + (d * height.places + h) * width.places + w;
          double count = 1;
          if constexpr (kMax) {
            if (index[g - dout] != in_plane) continue;
          } else {
            count = static_cast<double>(depth.count(d) * height.count(h) * width.count(w));
          }
          sum += static_cast<double>(*g) / count;
        }
      }
    }
    dx[i] = static_cast<float>(sum);
  }
};

/// Plane i: `from` is put, or added, at given positions of a plane of zeros. A position outside
/// makes the whole plane NaN; nothing is put at -1 if that may be missing.
template <typename Index>
struct PutInPlane {
  const Index* at;    ///< [planes, count] positions
  const float* from;  ///< [planes, count]
  float* to;          ///< [planes, size]
  int64_t count;      ///< elements of a plane that are put
  int64_t size;       ///< elements of a plane
  bool adds;          ///< elements at the same position are added, else the last one stays
  bool may_miss;      ///< -1 is no position
  constexpr void operator()(int64_t i) const {
    const Index* const places = at + i * count;
    float* const plane = to + i * size;
    bool inside = true;
    for (int64_t k = 0; k < size; ++k) plane[k] = 0.0F;
    for (int64_t k = 0; k < count; ++k) {
      const auto place = static_cast<int64_t>(places[k]);
      if (may_miss && place == -1) continue;
      if (place < 0 || place >= size) {
        inside = false;
        continue;
      }
      const float value = from[i * count + k];
      plane[place] = adds ? plane[place] + value : value;
    }
    for (int64_t k = 0; !inside && k < size; ++k)
      plane[k] = std::numeric_limits<float>::quiet_NaN();
  }
};

/// Element i of planes that are taken from given positions of larger planes; NaN for a position
/// outside.
template <typename Index>
struct TakeFromPlane {
  const Index* at;    ///< [planes, count] positions
  const float* from;  ///< [planes, size]
  float* to;          ///< [planes, count]
  int64_t count;      ///< elements of a plane that are taken
  int64_t size;       ///< elements of a larger plane
  constexpr void operator()(int64_t i) const {
    const auto place = static_cast<int64_t>(at[i]);
    const bool inside = place >= 0 && place < size;
    to[i] = inside ? from[i / count * size + place] : std::numeric_limits<float>::quiet_NaN();
  }
};

}  // namespace millrace::gpu
