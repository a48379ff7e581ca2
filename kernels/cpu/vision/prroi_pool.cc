#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/cpu/needed.h"
#include "kernels/cpu/vision/rois.h"
#include "kernels/dispatch.h"
#include "kernels/registry.h"

// prroi_pool: the mean of the image over each cell. Between pixels the image is interpolated
// bilinearly; outside of them it falls to zero. The integral of a bilinear image is the sum over
// pixels of their value times one weight per direction.
namespace millrace::kernels {
namespace prroi_pool_kernels {
namespace {

// The weight of a pixel at a distance, and the integral of the weight up to there.
template <typename T>
T hat(T distance) {
  return std::max(T{0}, T{1} - std::abs(distance));
}
template <typename T>
T hat_integral(T distance) {
  if (distance <= T{-1}) return T{0};
  if (distance >= T{1}) return T{1};
  return distance < 0 ? (distance + 1) * (distance + 1) / 2
                      : 1 - (1 - distance) * (1 - distance) / 2;
}

// One direction of one cell: [begin, end) in pixels, and the weights of the pixels from `first` on.
template <typename T>
struct PrroiPoolSide {
  T begin = 0;
  T end = 0;
  int64_t first = 0;
  std::vector<T> weight;

  void set(T from, T to, int64_t size) {
    begin = from;
    end = to;
    first = std::clamp<int64_t>(static_cast<int64_t>(std::floor(from)), 0, size);
    const int64_t last = std::clamp<int64_t>(static_cast<int64_t>(std::ceil(to)) + 1, first, size);
    weight.resize(static_cast<size_t>(last - first));
    for (size_t i = 0; i < weight.size(); ++i) weight[i] = integral_of(i);
  }
  [[nodiscard]] T place(size_t i) const { return static_cast<T>(first + static_cast<int64_t>(i)); }
  [[nodiscard]] T integral_of(size_t i) const {
    return hat_integral(end - place(i)) - hat_integral(begin - place(i));
  }
  [[nodiscard]] T length() const { return end - begin; }
};

template <typename T>
struct Cell {
  PrroiPoolSide<T> rows;
  PrroiPoolSide<T> columns;
  [[nodiscard]] T area() const { return rows.length() * columns.length(); }
};

// Calls body(index of the cell, row, column, cell) for the cells of a region.
template <typename T, typename Body>
void each_cell(const RoiAttrs& attrs, const RoiPlan& plan, const T* roi, Cell<T>& cell,
               Body&& body) {
  const T scale = static_cast<T>(attrs.scale);
  const T left = roi[0] * scale;
  const T top = roi[1] * scale;
  const T width = std::max(roi[2] * scale - left, T{0}) / static_cast<T>(attrs.pooled_width);
  const T height = std::max(roi[3] * scale - top, T{0}) / static_cast<T>(attrs.pooled_height);
  for (int64_t r = 0; r < attrs.pooled_height; ++r) {
    cell.rows.set(top + static_cast<T>(r) * height, top + static_cast<T>(r + 1) * height,
                  plan.height);
    for (int64_t c = 0; c < attrs.pooled_width; ++c) {
      cell.columns.set(left + static_cast<T>(c) * width, left + static_cast<T>(c + 1) * width,
                       plan.width);
      body(r * attrs.pooled_width + c, r, c, cell);
    }
  }
}

// Sum of the pixels of one channel with weights row(i) * column(j).
template <typename T, typename Row, typename Column>
T weighted_sum(const RoiPlan& plan, const Cell<T>& cell, const T* image, Row&& row,
               Column&& column) {
  T sum = 0;
  for (size_t i = 0; i < cell.rows.weight.size(); ++i) {
    const T* const line =
        image + (cell.rows.first + static_cast<int64_t>(i)) * plan.width + cell.columns.first;
    T part = 0;
    for (size_t j = 0; j < cell.columns.weight.size(); ++j) part += line[j] * column(j);
    sum += part * row(i);
  }
  return sum;
}

template <typename T>
void forward(const RoiAttrs& attrs, const RoiPlan& plan, const T* x, const T* rois, T* out) {
  const int64_t cells = attrs.pooled_height * attrs.pooled_width;
  Cell<T> scratch;
  for (size_t r = 0; r < plan.image.size(); ++r) {
    const T* const image = x + plan.image[r] * plan.channels * plan.pixels();
    T* const to = out + static_cast<int64_t>(r) * plan.channels * cells;
    each_cell(
        attrs, plan, rois + 4 * r, scratch, [&](int64_t at, int64_t, int64_t, const Cell<T>& cell) {
          const T area = cell.area();
          for (int64_t c = 0; c < plan.channels; ++c) {
            to[c * cells + at] = area > 0 ? weighted_sum(
                                                plan, cell, image + c * plan.pixels(),
                                                [&](size_t i) { return cell.rows.weight[i]; },
                                                [&](size_t j) { return cell.columns.weight[j]; }) /
                                                area
                                          : T{0};
          }
        });
  }
}

template <typename T>
struct PrroiPoolGradients {
  const T* x;
  const T* rois;
  const T* dout;
  T* dx;     // optional
  T* drois;  // optional
};

// The ends of a side depend on the ends of the region. Adds the contribution of the gradients of a
// side's ends to those of the region.
template <typename T>
void add_ends(T begin_slope, T end_slope, int64_t index, int64_t count, T scale, T* low, T* high) {
  const T begin_share = static_cast<T>(index) / static_cast<T>(count);
  const T end_share = static_cast<T>(index + 1) / static_cast<T>(count);
  *low += scale * (begin_slope * (1 - begin_share) + end_slope * (1 - end_share));
  *high += scale * (begin_slope * begin_share + end_slope * end_share);
}

template <typename T>
void region_slopes(const RoiAttrs& attrs, const RoiPlan& plan, const Cell<T>& cell, const T* image,
                   T dout, int64_t row, int64_t column, T* droi) {
  const auto by_row = [&](size_t i) { return cell.rows.weight[i]; };
  const auto by_column = [&](size_t j) { return cell.columns.weight[j]; };
  // the mean over the cell, and over each of its four borders
  const T mean = weighted_sum(plan, cell, image, by_row, by_column) / cell.area();
  const auto border = [&](const PrroiPoolSide<T>& side, T end) {
    return [&side, end](size_t i) { return hat(end - side.place(i)); };
  };
  const auto column_border = [&](T end) {
    return weighted_sum(plan, cell, image, by_row, border(cell.columns, end)) / cell.rows.length();
  };
  const auto row_border = [&](T end) {
    return weighted_sum(plan, cell, image, border(cell.rows, end), by_column) /
           cell.columns.length();
  };
  const T scale = static_cast<T>(attrs.scale);
  add_ends(dout * (mean - column_border(cell.columns.begin)) / cell.columns.length(),
           dout * (column_border(cell.columns.end) - mean) / cell.columns.length(), column,
           attrs.pooled_width, scale, droi, droi + 2);
  add_ends(dout * (mean - row_border(cell.rows.begin)) / cell.rows.length(),
           dout * (row_border(cell.rows.end) - mean) / cell.rows.length(), row, attrs.pooled_height,
           scale, droi + 1, droi + 3);
}

template <typename T>
void add_pixels(const RoiPlan& plan, const Cell<T>& cell, T share, T* image) {
  for (size_t i = 0; i < cell.rows.weight.size(); ++i) {
    T* const line =
        image + (cell.rows.first + static_cast<int64_t>(i)) * plan.width + cell.columns.first;
    for (size_t j = 0; j < cell.columns.weight.size(); ++j)
      line[j] += share * cell.rows.weight[i] * cell.columns.weight[j];
  }
}

template <typename T>
void backward(const RoiAttrs& attrs, const RoiPlan& plan, const PrroiPoolGradients<T>& g) {
  const int64_t cells = attrs.pooled_height * attrs.pooled_width;
  Cell<T> scratch;
  for (size_t r = 0; r < plan.image.size(); ++r) {
    const int64_t begin = plan.image[r] * plan.channels * plan.pixels();
    const T* const dout = g.dout + static_cast<int64_t>(r) * plan.channels * cells;
    each_cell(attrs, plan, g.rois + 4 * r, scratch,
              [&](int64_t at, int64_t row, int64_t column, const Cell<T>& cell) {
                const T area = cell.area();
                if (!(area > 0)) return;
                for (int64_t c = 0; c < plan.channels; ++c) {
                  const int64_t image = begin + c * plan.pixels();
                  const T d = dout[c * cells + at];
                  if (g.dx != nullptr) add_pixels(plan, cell, d / area, g.dx + image);
                  if (g.drois != nullptr)
                    region_slopes(attrs, plan, cell, g.x + image, d, row, column, g.drois + 4 * r);
                }
              });
  }
}

StatusOr<Kernel> prroi_pool(const KernelSetup& op) {
  const ArgIndex out = op.output("Out");
  return Kernel(
      [=, attrs = read_roi_attrs(op, "BatchRoINums")](const KernelContext& ctx) -> Status {
        MILLRACE_ASSIGN_OR_RETURN(const RoiPlan plan, plan_rois(ctx, attrs));
        const Tensor& x = ctx.in(attrs.x);
        return dispatch<FloatTypes>(x.dtype(), [&](auto tag) -> Status {
          using T = typename decltype(tag)::type;
          forward(attrs, plan, x.data<T>(), ctx.in(attrs.rois).data<T>(), ctx.out(out).data<T>());
          return Ok();
        });
      });
}

StatusOr<Kernel> prroi_pool_grad(const KernelSetup& op) {
  const ArgIndex dout = op.input("Out@GRAD");
  const ArgIndex dx = op.output("X@GRAD");
  const ArgIndex drois = op.output("ROIs@GRAD");
  return Kernel([=,
                 attrs = read_roi_attrs(op, "BatchRoINums")](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const RoiPlan plan, plan_rois(ctx, attrs));
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const d, needed(ctx, dout, "Out@GRAD"));
    const Tensor& x = ctx.in(attrs.x);
    const Tensor& rois = ctx.in(attrs.rois);
    const int64_t count = static_cast<int64_t>(plan.image.size()) * plan.channels *
                          attrs.pooled_height * attrs.pooled_width;
    if (d->numel() != count || d->dtype() != x.dtype())
      return ctx.error("Out@GRAD must have {} elements of the type of X, found {}", count,
                       describe(*d));
    MILLRACE_ASSIGN_OR_RETURN(Tensor* const to_x, result_like(ctx, dx, x));
    MILLRACE_ASSIGN_OR_RETURN(Tensor* const to_rois, result_like(ctx, drois, rois));
    return dispatch<FloatTypes>(x.dtype(), [&](auto tag) -> Status {
      using T = typename decltype(tag)::type;
      for (Tensor* const out : {to_x, to_rois})
        if (out != nullptr) std::fill_n(out->data<T>(), out->numel(), T{0});
      backward<T>(
          attrs, plan,
          {x.data<T>(), rois.data<T>(), d->data<T>(), to_x == nullptr ? nullptr : to_x->data<T>(),
           to_rois == nullptr ? nullptr : to_rois->data<T>()});
      return Ok();
    });
  });
}

}  // namespace
}  // namespace prroi_pool_kernels

void add_vision_prroi_pool(KernelRegistry& registry) {
  using namespace prroi_pool_kernels;
  registry.add("prroi_pool", prroi_pool);
  registry.add("prroi_pool_grad", prroi_pool_grad);
}

}  // namespace millrace::kernels
