#include "kernels/cpu/detection/polygons.h"

#include <algorithm>
#include <cmath>

#include <llvm/ADT/ArrayRef.h>
#include <llvm/ADT/SmallVector.h>

namespace millrace::kernels {
namespace polygons {
namespace {

struct PolygonsPoint {
  double x;
  double y;
};

// An edge, from its lower to its higher end; horizontal edges are ignored.
struct PolygonsSide {
  PolygonsPoint low;
  PolygonsPoint high;

  [[nodiscard]] double x_at(double y) const {
    return low.x + (high.x - low.x) * (y - low.y) / (high.y - low.y);
  }
};

using Sides = llvm::SmallVector<PolygonsSide, 16>;
using Numbers = llvm::SmallVector<double, 64>;

template <typename T>
PolygonsPoint corner(const T* polygon, int64_t i) {
  return {static_cast<double>(polygon[2 * i]), static_cast<double>(polygon[2 * i + 1])};
}

template <typename T>
double area(const T* polygon, int64_t corners) {
  double twice = 0;
  for (int64_t i = 0; i < corners; ++i) {
    const PolygonsPoint a = corner(polygon, i);
    const PolygonsPoint b = corner(polygon, (i + 1) % corners);
    twice += a.x * b.y - a.y * b.x;
  }
  return std::abs(twice / 2);
}

template <typename T>
Sides sides_of(const T* polygon, int64_t corners) {
  Sides sides;
  for (int64_t i = 0; i < corners; ++i) {
    const PolygonsPoint a = corner(polygon, i);
    const PolygonsPoint b = corner(polygon, (i + 1) % corners);
    if (a.y != b.y) sides.push_back(a.y < b.y ? PolygonsSide{a, b} : PolygonsSide{b, a});
  }
  return sides;
}

// Heights at which edges begin, end or cross: between two of them the order of the edges is fixed.
Numbers heights_of(llvm::ArrayRef<PolygonsSide> sides) {
  Numbers heights;
  for (size_t i = 0; i < sides.size(); ++i) {
    const PolygonsSide& a = sides[i];
    heights.append({a.low.y, a.high.y});
    for (const PolygonsSide& b : sides.drop_front(i + 1)) {
      const double from = std::max(a.low.y, b.low.y);
      const double to = std::min(a.high.y, b.high.y);
      if (from >= to) continue;
      // the distance between two edges is linear in between
      const double first = a.x_at(from) - b.x_at(from);
      const double last = a.x_at(to) - b.x_at(to);
      if (first * last < 0) heights.push_back(from + (to - from) * first / (first - last));
    }
  }
  std::sort(heights.begin(), heights.end());
  heights.erase(std::unique(heights.begin(), heights.end()), heights.end());
  return heights;
}

// The positions where a horizontal line enters and leaves a polygon, in order.
Numbers crossings(llvm::ArrayRef<PolygonsSide> sides, double y) {
  Numbers found;
  for (const PolygonsSide& side : sides) {
    if (side.low.y <= y && y < side.high.y) found.push_back(side.x_at(y));
  }
  std::sort(found.begin(), found.end());
  return found;
}

// Length of the part of a horizontal line that is inside both polygons.
double common_length(const Numbers& a, const Numbers& b) {
  double length = 0;
  for (size_t i = 0, k = 0; i + 1 < a.size() && k + 1 < b.size();) {
    length += std::max(0.0, std::min(a[i + 1], b[k + 1]) - std::max(a[i], b[k]));
    (a[i + 1] < b[k + 1] ? i : k) += 2;
  }
  return length;
}

// Splits the plane into bands in which all edges are straight and none cross. The area of the
// intersection within a band is its height times the common length in its middle.
double common_area(const Sides& a, const Sides& b) {
  Sides all = a;
  all.append(b.begin(), b.end());
  const Numbers heights = heights_of(all);
  double sum = 0;
  for (size_t i = 0; i + 1 < heights.size(); ++i) {
    const double middle = heights[i] + (heights[i + 1] - heights[i]) / 2;
    sum +=
        (heights[i + 1] - heights[i]) * common_length(crossings(a, middle), crossings(b, middle));
  }
  return sum;
}

}  // namespace
}  // namespace polygons

template <typename T>
T polygon_overlap(const T* a, const T* b, int64_t width) {
  using namespace polygons;
  const int64_t corners = width / 2;
  const double area_a = area(a, corners);
  const double area_b = area(b, corners);
  const double common = common_area(sides_of(a, corners), sides_of(b, corners));
  if (area_a == 0 || area_b == 0 || common == 0) return T{0};
  return static_cast<T>(common / (area_a + area_b - common));
}

template float polygon_overlap(const float*, const float*, int64_t);
template double polygon_overlap(const double*, const double*, int64_t);

}  // namespace millrace::kernels
