#include <algorithm>
#include <array>
#include <cmath>

#include "kernels/cpu/needed.h"
#include "kernels/cpu/nn/window.h"
#include "kernels/cpu/vision/rois.h"
#include "kernels/dispatch.h"
#include "kernels/registry.h"

namespace millrace::kernels {
namespace {

// Smaller distances count as 0.
constexpr double kNear = 1e-4;

template <typename T>
bool near_of(T a, T b) {
  return std::abs(a - b) < static_cast<T>(kNear);
}
template <typename T>
bool at_least_of(T a, T b) {
  return a > b || near_of(a, b);
}

// Corners, clockwise from the top left.
template <typename T>
struct Quadrangle {
  std::array<T, 4> x;
  std::array<T, 4> y;

  Quadrangle(const T* roi, T scale) {
    for (size_t k = 0; k < 4; ++k) {
      x[k] = roi[2 * k] * scale;
      y[k] = roi[2 * k + 1] * scale;
    }
  }
  [[nodiscard]] T side(size_t k) const {
    const size_t next = (k + 1) % 4;
    return std::sqrt((x[k] - x[next]) * (x[k] - x[next]) + (y[k] - y[next]) * (y[k] - y[next]));
  }
  [[nodiscard]] bool contains(T px, T py) const;
};

// True if the point is on an edge, or has an odd number of edges to its right.
template <typename T>
bool Quadrangle<T>::contains(T px, T py) const {
  int crossed = 0;
  for (size_t k = 0; k < 4; ++k) {
    const size_t next = (k + 1) % 4;
    const T low = std::min(y[k], y[next]);
    const T high = std::max(y[k], y[next]);
    if (near_of(y[k], y[next])) {
      if (near_of(py, y[k]) && near_of(py, y[next]) && at_least_of(px, std::min(x[k], x[next])) &&
          at_least_of(std::max(x[k], x[next]), px))
        return true;
      continue;
    }
    const T cut = (py - y[k]) * (x[next] - x[k]) / (y[next] - y[k]) + x[k];
    if (near_of(cut, px) && at_least_of(py, low) && at_least_of(high, py)) return true;
    const bool outside = at_least_of(low, py) || py - high > static_cast<T>(kNear);
    if (!outside && cut - px > static_cast<T>(kNear)) ++crossed;
  }
  return crossed % 2 == 1;
}

// The projective map from pixels of Out to points of the image. The height of Out is given. The
// width that is used follows from the sides of the quadrangle; the rest of the row is empty.
template <typename T>
std::array<T, 9> perspective_of(const Quadrangle<T>& q, int64_t height, int64_t width) {
  const T tall = (q.side(1) + q.side(3)) / 2;
  const T wide = (q.side(0) + q.side(2)) / 2;
  const T rows = static_cast<T>(std::max<int64_t>(height, 2) - 1);
  // NaN if the quadrangle is a single point; then 1 is used
  const T asked = std::min(std::round(wide * rows / tall), static_cast<T>(width - 1));
  const T columns = asked > 1 ? asked : T{1};
  const auto bend = [](const std::array<T, 4>& v) { return v[0] - v[1] + v[2] - v[3]; };
  const T dx1 = q.x[1] - q.x[2];
  const T dx2 = q.x[3] - q.x[2];
  const T dy1 = q.y[1] - q.y[2];
  const T dy2 = q.y[3] - q.y[2];
  const T area = dx1 * dy2 - dx2 * dy1 + static_cast<T>(1e-5);
  std::array<T, 9> m{};
  m[6] = (bend(q.x) * dy2 - dx2 * bend(q.y)) / area / columns;
  m[7] = (dx1 * bend(q.y) - bend(q.x) * dy1) / area / rows;
  m[8] = 1;
  const auto row = [&](const std::array<T, 4>& v, size_t at) {
    m[at] = (v[1] - v[0] + m[6] * columns * v[1]) / columns;
    m[at + 1] = (v[3] - v[0] + m[7] * rows * v[3]) / rows;
    m[at + 2] = v[0];
  };
  row(q.x, 0);
  row(q.y, 3);
  return m;
}

// Four pixels around a point and their weights: top left, bottom left, bottom right, top right.
template <typename T>
struct WarpedPoint {
  std::array<int64_t, 4> at{};
  std::array<T, 4> weight{};
};

// False for points more than half a pixel outside of the image.
template <typename T>
bool warped_point(const RoiPlan& plan, T x, T y, WarpedPoint<T>& point) {
  const T half = static_cast<T>(0.5);
  const T end = static_cast<T>(plan.width);
  const T bottom = static_cast<T>(plan.height);
  const auto inside = [&](T v, T size) {
    return !at_least_of(-half, v) && !at_least_of(v, size - half) && !std::isnan(v);
  };
  if (!inside(x, end) || !inside(y, bottom)) return false;
  const auto split = [](T& v, int64_t size, int64_t& low, int64_t& high) {
    if (at_least_of(T{0}, v)) v = 0;
    low = static_cast<int64_t>(v);
    high = low + 1;
    if (low < size - 1) return;
    low = high = size - 1;
    v = static_cast<T>(low);
  };
  int64_t left = 0;
  int64_t right = 0;
  int64_t top = 0;
  int64_t below = 0;
  split(x, plan.width, left, right);
  split(y, plan.height, top, below);
  const T across = x - static_cast<T>(left);
  const T down = y - static_cast<T>(top);
  point.at = {top * plan.width + left, below * plan.width + left, below * plan.width + right,
              top * plan.width + right};
  point.weight = {(1 - across) * (1 - down), (1 - across) * down, across * down,
                  across * (1 - down)};
  return true;
}

struct WarpSettings {
  RoiAttrs roi;  // pooled sizes are those of Out
  [[nodiscard]] int64_t pixels() const { return roi.pooled_height * roi.pooled_width; }
};

WarpSettings read_warp(const KernelSetup& op) {
  WarpSettings s;
  s.roi.pooled_height = op.attr<int64_t>("transformed_height");
  s.roi.pooled_width = op.attr<int64_t>("transformed_width");
  s.roi.scale = op.attr<float>("spatial_scale");
  s.roi.x = op.input("X");
  s.roi.rois = op.input("ROIs");
  s.roi.width = 8;
  return s;
}

// Calls body(pixel of Out, point) for the pixels of a region that show a part of the image.
template <typename T, typename Body>
std::array<T, 9> for_warped_points(const RoiPlan& plan, const WarpSettings& s, const T* roi,
                                   Body&& body) {
  const Quadrangle<T> q(roi, static_cast<T>(s.roi.scale));
  const std::array<T, 9> m = perspective_of(q, s.roi.pooled_height, s.roi.pooled_width);
  for (int64_t i = 0; i < s.pixels(); ++i) {
    const T column = static_cast<T>(i % s.roi.pooled_width);
    const int64_t line = i / s.roi.pooled_width;
    const T row = static_cast<T>(line);
    const T depth = m[6] * column + m[7] * row + m[8];
    const T x = (m[0] * column + m[1] * row + m[2]) / depth;
    const T y = (m[3] * column + m[4] * row + m[5]) / depth;
    WarpedPoint<T> point;
    if (q.contains(x, y) && warped_point(plan, x, y, point)) body(i, point);
  }
  return m;
}

struct WarpOutputs {
  ArgIndex out, mask, matrix, index, weights;
};

// Outputs of one region; null if the program does not request them.
template <typename T>
struct WarpTargets {
  T* out;
  int32_t* mask;
  T* matrix;
  int32_t* index;
  T* weights;
};

template <typename T>
void warp_region(const RoiPlan& plan, const WarpSettings& s, const T* x, const T* roi,
                 int64_t image, const WarpTargets<T>& to) {
  const T* const planes = x + image * plan.channels * plan.pixels();
  std::fill_n(to.out, plan.channels * s.pixels(), T{0});
  if (to.mask != nullptr) std::fill_n(to.mask, s.pixels(), 0);
  if (to.index != nullptr) std::fill_n(to.index, 4 * s.pixels(), -1);
  if (to.weights != nullptr) std::fill_n(to.weights, 4 * s.pixels(), T{0});
  const auto m = for_warped_points(plan, s, roi, [&](int64_t i, const WarpedPoint<T>& p) {
    for (int64_t c = 0; c < plan.channels; ++c) {
      T sum = 0;
      for (size_t k = 0; k < 4; ++k) sum += p.weight[k] * planes[c * plan.pixels() + p.at[k]];
      to.out[c * s.pixels() + i] = sum;
    }
    if (to.mask != nullptr) to.mask[i] = 1;
    for (size_t k = 0; k < 4; ++k) {
      const auto at = 4 * i + static_cast<int64_t>(k);
      if (to.index != nullptr)
        to.index[at] = static_cast<int32_t>(image * plan.channels * plan.pixels() + p.at[k]);
      if (to.weights != nullptr) to.weights[at] = p.weight[k];
    }
  });
  if (to.matrix != nullptr) std::copy(m.begin(), m.end(), to.matrix);
}

Status make_warp_outputs(const KernelContext& ctx, const WarpOutputs& outputs, const RoiPlan& plan,
                         const WarpSettings& s, DType dtype) {
  const auto regions = static_cast<int64_t>(plan.image.size());
  const auto make = [&](ArgIndex arg, DType type, const Dims& dims) {
    Tensor* const out = ctx.find_out(arg);
    return out == nullptr ? Ok() : out->resize(type, dims);
  };
  MILLRACE_RETURN_IF_ERROR(
      make(outputs.out, dtype, {regions, plan.channels, s.roi.pooled_height, s.roi.pooled_width}));
  MILLRACE_RETURN_IF_ERROR(
      make(outputs.mask, DType::kInt32, {regions, 1, s.roi.pooled_height, s.roi.pooled_width}));
  MILLRACE_RETURN_IF_ERROR(make(outputs.matrix, dtype, {regions, 9}));
  MILLRACE_RETURN_IF_ERROR(make(outputs.index, DType::kInt32, {regions, s.pixels(), 4}));
  return make(outputs.weights, dtype, {regions, s.pixels(), 4});
}

StatusOr<Kernel> roi_perspective_transform(const KernelSetup& op) {
  const WarpOutputs outputs{op.output("Out"), op.output("Mask"), op.output("TransformMatrix"),
                            op.output("Out2InIdx"), op.output("Out2InWeights")};
  return Kernel([=, s = read_warp(op)](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const RoiPlan plan, plan_rois(ctx, s.roi));
    const Tensor& x = *ctx.find_in(s.roi.x);
    const Tensor& rois = *ctx.find_in(s.roi.rois);
    MILLRACE_RETURN_IF_ERROR(make_warp_outputs(ctx, outputs, plan, s, x.dtype()));
    return dispatch<FloatTypes>(x.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      const auto floats = [&](ArgIndex arg, int64_t at) {
        Tensor* const out = ctx.find_out(arg);
        return out == nullptr ? nullptr : out->data<T>() + at;
      };
      const auto integers = [&](ArgIndex arg, int64_t at) {
        Tensor* const out = ctx.find_out(arg);
        return out == nullptr ? nullptr : out->data<int32_t>() + at;
      };
      const auto regions = static_cast<int64_t>(plan.image.size());
      ctx.device().parallel_for(regions, 1, [&](int64_t begin, int64_t end) {
        for (int64_t r = begin; r < end; ++r) {
          const WarpTargets<T> to{floats(outputs.out, r * plan.channels * s.pixels()),
                                  integers(outputs.mask, r * s.pixels()),
                                  floats(outputs.matrix, 9 * r),
                                  integers(outputs.index, 4 * r * s.pixels()),
                                  floats(outputs.weights, 4 * r * s.pixels())};
          warp_region(plan, s, x.data<T>(), rois.data<T>() + 8 * r,
                      plan.image[static_cast<size_t>(r)], to);
        }
      });
      return Ok();
    });
  });
}

StatusOr<Kernel> roi_perspective_transform_grad(const KernelSetup& op) {
  const ArgIndex out_grad = op.input("Out@GRAD");
  const ArgIndex x_grad = op.output("X@GRAD");
  return Kernel([=, s = read_warp(op)](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const RoiPlan plan, plan_rois(ctx, s.roi));
    MILLRACE_ASSIGN_OR_RETURN(Tensor* const dx,
                              prepare_roi_grad(ctx, s.roi, plan, out_grad, x_grad, plan.channels));
    if (dx == nullptr) return Ok();
    const Tensor& rois = *ctx.find_in(s.roi.rois);
    const Tensor& dout = *ctx.find_in(out_grad);
    return dispatch<FloatTypes>(dx->dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      for (size_t r = 0; r < plan.image.size(); ++r) {
        T* const planes = dx->data<T>() + plan.image[r] * plan.channels * plan.pixels();
        const T* const g = dout.data<T>() + static_cast<int64_t>(r) * plan.channels * s.pixels();
        for_warped_points(plan, s, rois.data<T>() + 8 * r, [&](int64_t i, const WarpedPoint<T>& p) {
          for (int64_t c = 0; c < plan.channels; ++c) {
            for (size_t k = 0; k < 4; ++k)
              planes[c * plan.pixels() + p.at[k]] += g[c * s.pixels() + i] * p.weight[k];
          }
        });
      }
      return Ok();
    });
  });
}

}  // namespace

void add_vision_roi_perspective_transform(KernelRegistry& registry) {
  registry.add("roi_perspective_transform", roi_perspective_transform);
  registry.add("roi_perspective_transform_grad", roi_perspective_transform_grad);
}

}  // namespace millrace::kernels
