#include "kernels/cpu/detection/polygon_mask.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <vector>

#include "kernels/kernel.h"

namespace millrace::kernels {
namespace {

// Number of fine grid points per pixel, along each side.
constexpr int64_t kFine = 5;
constexpr double kFarthest = 1e6;

struct FinePoint {
  int64_t x, y;
};

// Follows an outline and counts, for each pixel of the mask, how often the outline crosses the
// pixel's column above it. Pixels are ordered column by column.
class Outline {
 public:
  explicit Outline(int64_t side)
      : side_(side), crossings_(static_cast<size_t>(side * side) + 1, 0) {}

  void edge(FinePoint from, FinePoint to);
  // ORs the interior into the mask, row by row.
  void fill(int32_t* mask) const;

 private:
  void visit(FinePoint point);

  int64_t side_;
  std::vector<int32_t> crossings_;  // indexed by the first pixel below
  bool started_ = false;
  FinePoint last_{};
};

// Moving to the next fine column crosses the centre of a pixel if the line between the two fine
// columns is the third of five.
void Outline::visit(FinePoint point) {
  if (started_ && point.x != last_.x) {
    const int64_t line = point.x < last_.x ? point.x : point.x - 1;
    const int64_t column = (line - kFine / 2) / kFine;
    if (line >= kFine / 2 && (line - kFine / 2) % kFine == 0 && column < side_) {
      // the first pixel whose centre is not above the crossing
      const int64_t above = std::min(point.y, last_.y) + kFine / 2;
      const int64_t row = above < 0 ? 0 : std::min(above / kFine, side_);
      ++crossings_[static_cast<size_t>(column * side_ + row)];
    }
  }
  started_ = true;
  last_ = point;
}

// All fine points of an edge in order. Halves are rounded as seen from the end with the smaller
// coordinate, regardless of the direction of the edge.
void Outline::edge(FinePoint from, FinePoint to) {
  const int64_t dx = std::abs(to.x - from.x);
  const int64_t dy = std::abs(to.y - from.y);
  const bool flat = dx >= dy;
  const int64_t steps = flat ? dx : dy;
  if (steps == 0) return visit(from);
  const bool back = flat ? from.x > to.x : from.y > to.y;
  const FinePoint low = back ? to : from;
  const FinePoint high = back ? from : to;
  const double slope = flat ? static_cast<double>(high.y - low.y) / static_cast<double>(dx)
                            : static_cast<double>(high.x - low.x) / static_cast<double>(dy);
  for (int64_t i = 0; i <= steps; ++i) {
    const int64_t t = back ? steps - i : i;
    const double start = static_cast<double>(flat ? low.y : low.x);
    const auto other =
        static_cast<int64_t>(std::floor(start + slope * static_cast<double>(t) + 0.5));
    visit(flat ? FinePoint{low.x + t, other} : FinePoint{other, low.y + t});
  }
}

void Outline::fill(int32_t* mask) const {
  int32_t passed = 0;
  for (int64_t column = 0; column < side_; ++column) {
    for (int64_t row = 0; row < side_; ++row) {
      passed += crossings_[static_cast<size_t>(column * side_ + row)];
      if (passed % 2 != 0) mask[row * side_ + column] = 1;
    }
  }
}

}  // namespace

template <typename T>
Status draw_polygons(llvm::ArrayRef<llvm::ArrayRef<T>> polygons, const T* box, int64_t side,
                     int32_t* mask) {
  const T width = std::max(box[2] - box[0], T{1});
  const T height = std::max(box[3] - box[1], T{1});
  std::fill_n(mask, side * side, 0);
  for (const llvm::ArrayRef<T> polygon : polygons) {
    std::vector<FinePoint> points;
    for (size_t k = 0; k + 1 < polygon.size(); k += 2) {
      const T x = (polygon[k] - box[0]) * static_cast<T>(side) / width;
      const T y = (polygon[k + 1] - box[1]) * static_cast<T>(side) / height;
      if (!(std::abs(static_cast<double>(x)) < kFarthest &&
            std::abs(static_cast<double>(y)) < kFarthest)) {
        return KernelContext::error(
            "point ({}, {}) of GtSegms is too far from box ({}, {}, {}, {})", polygon[k],
            polygon[k + 1], box[0], box[1], box[2], box[3]);
      }
      const auto fine = [](T value) {
        return static_cast<int64_t>(
            std::round(static_cast<double>(kFine) * static_cast<double>(value)));
      };
      points.push_back({fine(x), fine(y)});
    }
    Outline outline(side);
    for (size_t k = 0; k < points.size(); ++k)
      outline.edge(points[k], points[(k + 1) % points.size()]);
    outline.fill(mask);
  }
  return Ok();
}

template Status draw_polygons(llvm::ArrayRef<llvm::ArrayRef<float>>, const float*, int64_t,
                              int32_t*);
template Status draw_polygons(llvm::ArrayRef<llvm::ArrayRef<double>>, const double*, int64_t,
                              int32_t*);

}  // namespace millrace::kernels
