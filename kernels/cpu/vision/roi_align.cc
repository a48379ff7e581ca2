#include <algorithm>
#include <array>
#include <cmath>

#include "kernels/cpu/needed.h"
#include "kernels/cpu/vision/rois.h"
#include "kernels/dispatch.h"
#include "kernels/registry.h"

namespace millrace::kernels {
namespace roi_align_kernels {
namespace {

struct RoiAlignAttrs {
  RoiAttrs roi;
  int64_t sampling = -1;
  bool aligned = false;
};

RoiAlignAttrs read_attrs(const KernelSetup& op) {
  return {read_roi_attrs(op), op.attr<int64_t>("sampling_ratio"), op.attr<bool>("aligned")};
}

// The points at which one region is sampled.
template <typename T>
struct Region {
  T top, left;
  T cell_height, cell_width;
  int64_t rows, columns;  // points per cell

  // If at_least_one, regions are enlarged to at least one pixel.
  Region(const RoiAlignAttrs& attrs, const T* roi, bool at_least_one) {
    const T scale = static_cast<T>(attrs.roi.scale);
    const T shift = attrs.aligned ? T{0.5} : T{0};
    left = roi[0] * scale - shift;
    top = roi[1] * scale - shift;
    T width = roi[2] * scale - shift - left;
    T height = roi[3] * scale - shift - top;
    if (at_least_one) {
      width = std::max(width, T{1});
      height = std::max(height, T{1});
    }
    cell_height = height / static_cast<T>(attrs.roi.pooled_height);
    cell_width = width / static_cast<T>(attrs.roi.pooled_width);
    rows = attrs.sampling > 0 ? attrs.sampling : static_cast<int64_t>(std::ceil(cell_height));
    columns = attrs.sampling > 0 ? attrs.sampling : static_cast<int64_t>(std::ceil(cell_width));
    rows = std::max<int64_t>(rows, 0);
    columns = std::max<int64_t>(columns, 0);
  }
};

// Four pixels around a point and their weights; all weights are 0 far outside the image.
template <typename T>
struct RoiAlignPoint {
  std::array<int64_t, 4> at{};
  std::array<T, 4> weight{};
};

template <typename T>
RoiAlignPoint<T> point_at(const RoiPlan& plan, T y, T x) {
  RoiAlignPoint<T> p;
  if (y < -1 || y > static_cast<T>(plan.height) || x < -1 || x > static_cast<T>(plan.width))
    return p;
  const auto split = [](T value, int64_t size, int64_t& low, int64_t& high) {
    value = std::max(value, T{0});
    low = static_cast<int64_t>(value);
    if (low >= size - 1) {
      low = high = size - 1;
      return T{0};
    }
    high = low + 1;
    return value - static_cast<T>(low);
  };
  int64_t top = 0;
  int64_t bottom = 0;
  int64_t left = 0;
  int64_t right = 0;
  const T down = split(y, plan.height, top, bottom);
  const T along = split(x, plan.width, left, right);
  p.at = {top * plan.width + left, top * plan.width + right, bottom * plan.width + left,
          bottom * plan.width + right};
  p.weight = {(1 - down) * (1 - along), (1 - down) * along, down * (1 - along), down * along};
  return p;
}

// Calls body(cell, point) for all points of all cells of a region.
template <typename T, typename Body>
void for_points(const RoiPlan& plan, const RoiAlignAttrs& attrs, const Region<T>& r, Body&& body) {
  for (int64_t ph = 0; ph < attrs.roi.pooled_height; ++ph) {
    for (int64_t pw = 0; pw < attrs.roi.pooled_width; ++pw) {
      for (int64_t i = 0; i < r.rows; ++i) {
        const T y = r.top + static_cast<T>(ph) * r.cell_height +
                    (static_cast<T>(i) + T{0.5}) * r.cell_height / static_cast<T>(r.rows);
        for (int64_t k = 0; k < r.columns; ++k) {
          const T x = r.left + static_cast<T>(pw) * r.cell_width +
                      (static_cast<T>(k) + T{0.5}) * r.cell_width / static_cast<T>(r.columns);
          body(ph * attrs.roi.pooled_width + pw, point_at(plan, y, x));
        }
      }
    }
  }
}

StatusOr<Kernel> roi_align(const KernelSetup& op) {
  const ArgIndex out = op.output("Out");
  return Kernel([=, attrs = read_attrs(op)](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const RoiPlan plan, plan_rois(ctx, attrs.roi));
    const Tensor& x = *ctx.find_in(attrs.roi.x);
    const Tensor& rois = *ctx.find_in(attrs.roi.rois);
    Tensor& to = ctx.out(out);
    return dispatch<FloatTypes>(x.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      const int64_t cells = attrs.roi.pooled_height * attrs.roi.pooled_width;
      const auto regions = static_cast<int64_t>(plan.image.size());
      ctx.device().parallel_for(regions, 1, [&](int64_t begin, int64_t end) {
        for (int64_t r = begin; r < end; ++r) {
          const Region<T> region(attrs, rois.data<T>() + 4 * r, !attrs.aligned);
          const T share = T{1} / static_cast<T>(std::max<int64_t>(region.rows * region.columns, 1));
          const T* const image =
              x.data<T>() + plan.image[static_cast<size_t>(r)] * plan.channels * plan.pixels();
          T* const sums = to.data<T>() + r * plan.channels * cells;
          std::fill_n(sums, plan.channels * cells, T{0});
          for_points(plan, attrs, region, [&](int64_t cell, const RoiAlignPoint<T>& p) {
            for (int64_t c = 0; c < plan.channels; ++c) {
              const T* const plane = image + c * plan.pixels();
              T value = 0;
              for (size_t k = 0; k < 4; ++k) value += p.weight[k] * plane[p.at[k]];
              sums[c * cells + cell] += value;
            }
          });
          for (int64_t i = 0; i < plan.channels * cells; ++i) sums[i] *= share;
        }
      });
      return Ok();
    });
  });
}

StatusOr<Kernel> roi_align_grad(const KernelSetup& op) {
  const ArgIndex out_grad = op.input("Out@GRAD");
  const ArgIndex x_grad = op.output("X@GRAD");
  return Kernel([=, attrs = read_attrs(op)](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const RoiPlan plan, plan_rois(ctx, attrs.roi));
    MILLRACE_ASSIGN_OR_RETURN(
        Tensor* const dx, prepare_roi_grad(ctx, attrs.roi, plan, out_grad, x_grad, plan.channels));
    if (dx == nullptr) return Ok();
    const Tensor& rois = *ctx.find_in(attrs.roi.rois);
    const Tensor& dout = *ctx.find_in(out_grad);
    return dispatch<FloatTypes>(dx->dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      const int64_t cells = attrs.roi.pooled_height * attrs.roi.pooled_width;
      for (size_t r = 0; r < plan.image.size(); ++r) {
        // The original's gradient also enlarges aligned regions to at least one pixel.
        const Region<T> region(attrs, rois.data<T>() + 4 * r, true);
        const T share = T{1} / static_cast<T>(std::max<int64_t>(region.rows * region.columns, 1));
        T* const image = dx->data<T>() + plan.image[r] * plan.channels * plan.pixels();
        const T* const g = dout.data<T>() + static_cast<int64_t>(r) * plan.channels * cells;
        for_points(plan, attrs, region, [&](int64_t cell, const RoiAlignPoint<T>& p) {
          for (int64_t c = 0; c < plan.channels; ++c) {
            const T value = g[c * cells + cell] * share;
            for (size_t k = 0; k < 4; ++k)
              image[c * plan.pixels() + p.at[k]] += value * p.weight[k];
          }
        });
      }
      return Ok();
    });
  });
}

}  // namespace
}  // namespace roi_align_kernels

void add_vision_roi_align(KernelRegistry& registry) {
  using namespace roi_align_kernels;
  registry.add("roi_align", roi_align);
  registry.add("roi_align_grad", roi_align_grad);
}

}  // namespace millrace::kernels
