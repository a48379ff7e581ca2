#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/cpu/needed.h"
#include "kernels/cpu/vision/rois.h"
#include "kernels/dispatch.h"
#include "kernels/registry.h"

// roi_pool and psroi_pool: maximum or average of all pixels of each cell.
namespace millrace::kernels {
namespace roi_pool_kernels {
namespace {

// Pixels [begin, end) of a cell along one dim.
struct Span {
  int64_t begin;
  int64_t end;
};

template <typename T>
Span span_of(T start, T cell, int64_t index, int64_t size) {
  const auto low = static_cast<int64_t>(std::floor(static_cast<T>(index) * cell + start));
  const auto high = static_cast<int64_t>(std::ceil(static_cast<T>(index + 1) * cell + start));
  const int64_t begin = std::clamp<int64_t>(low, 0, size);
  return {begin, std::max(std::clamp<int64_t>(high, 0, size), begin)};
}

// Calls body(row of cells, column of cells, rows, columns) for all cells of a region.
template <typename T, typename Body>
void for_cells(const RoiPlan& plan, const RoiAttrs& attrs, T top, T left, T height, T width,
               Body&& body) {
  const T cell_height = height / static_cast<T>(attrs.pooled_height);
  const T cell_width = width / static_cast<T>(attrs.pooled_width);
  for (int64_t ph = 0; ph < attrs.pooled_height; ++ph) {
    for (int64_t pw = 0; pw < attrs.pooled_width; ++pw) {
      body(ph, pw, span_of(top, cell_height, ph, plan.height),
           span_of(left, cell_width, pw, plan.width));
    }
  }
}

// Regions are rounded to pixels and include both borders. Cells are relative to the rounded start.
template <typename T, typename Body>
void for_pool_cells(const RoiPlan& plan, const RoiAttrs& attrs, const T* roi, Body&& body) {
  const auto pixel = [&](int64_t i) { return std::round(roi[i] * static_cast<T>(attrs.scale)); };
  const T height = std::max(pixel(3) - pixel(1) + 1, T{1});
  const T width = std::max(pixel(2) - pixel(0) + 1, T{1});
  for_cells(plan, attrs, pixel(1), pixel(0), height, width, body);
}

// Regions are rounded before they are scaled.
template <typename T, typename Body>
void for_psroi_cells(const RoiPlan& plan, const RoiAttrs& attrs, const T* roi, Body&& body) {
  const T scale = static_cast<T>(attrs.scale);
  const T left = std::round(roi[0]) * scale;
  const T top = std::round(roi[1]) * scale;
  const T width = std::max((std::round(roi[2]) + 1) * scale - left, T{0.1});
  const T height = std::max((std::round(roi[3]) + 1) * scale - top, T{0.1});
  for_cells(plan, attrs, top, left, height, width, body);
}

template <typename T>
void largest(const RoiPlan& plan, const T* plane, Span rows, Span columns, T& value, int64_t& at) {
  value = rows.begin == rows.end || columns.begin == columns.end ? T{0}
                                                                 : std::numeric_limits<T>::lowest();
  at = -1;
  for (int64_t y = rows.begin; y < rows.end; ++y) {
    for (int64_t x = columns.begin; x < columns.end; ++x) {
      const int64_t pixel = y * plan.width + x;
      if (!(plane[pixel] > value)) continue;
      value = plane[pixel];
      at = pixel;
    }
  }
}

StatusOr<Kernel> roi_pool(const KernelSetup& op) {
  const ArgIndex out = op.output("Out");
  const ArgIndex argmax = op.output("Argmax");
  return Kernel([=, attrs = read_roi_attrs(op)](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const RoiPlan plan, plan_rois(ctx, attrs));
    const Tensor& x = *ctx.find_in(attrs.x);
    const Tensor& rois = *ctx.find_in(attrs.rois);
    Tensor* const places = ctx.find_out(argmax);
    return dispatch<FloatTypes>(x.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      const int64_t cells = attrs.pooled_height * attrs.pooled_width;
      T* const to = ctx.out(out).data<T>();
      for (size_t r = 0; r < plan.image.size(); ++r) {
        const T* const image = x.data<T>() + plan.image[r] * plan.channels * plan.pixels();
        const int64_t first = static_cast<int64_t>(r) * plan.channels * cells;
        for_pool_cells(plan, attrs, rois.data<T>() + 4 * r,
                       [&](int64_t ph, int64_t pw, Span rows, Span columns) {
                         for (int64_t c = 0; c < plan.channels; ++c) {
                           const int64_t cell = first + c * cells + ph * attrs.pooled_width + pw;
                           int64_t at = -1;
                           largest(plan, image + c * plan.pixels(), rows, columns, to[cell], at);
                           if (places != nullptr) places->data<int64_t>()[cell] = at;
                         }
                       });
      }
      return Ok();
    });
  });
}

StatusOr<Kernel> roi_pool_grad(const KernelSetup& op) {
  const ArgIndex argmax = op.input("Argmax");
  const ArgIndex out_grad = op.input("Out@GRAD");
  const ArgIndex x_grad = op.output("X@GRAD");
  return Kernel([=, attrs = read_roi_attrs(op)](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const RoiPlan plan, plan_rois(ctx, attrs));
    MILLRACE_ASSIGN_OR_RETURN(Tensor* const dx,
                              prepare_roi_grad(ctx, attrs, plan, out_grad, x_grad, plan.channels));
    if (dx == nullptr) return Ok();
    const Tensor& dout = *ctx.find_in(out_grad);
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const places, needed(ctx, argmax, "Argmax"));
    if (places->dtype() != DType::kInt64 || places->numel() != dout.numel())
      return ctx.error("Argmax {} does not fit Out@GRAD {}", describe(*places), describe(dout));
    return dispatch<FloatTypes>(dx->dtype(), [&](auto tag) -> Status {
      using T = typename decltype(tag)::type;
      const int64_t cells = attrs.pooled_height * attrs.pooled_width;
      for (int64_t i = 0; i < dout.numel(); ++i) {
        const int64_t at = places->data<int64_t>()[i];
        if (at < -1 || at >= plan.pixels())
          return ctx.error("Argmax has position {} in an image of {} pixels", at, plan.pixels());
        if (at < 0) continue;
        const int64_t r = i / (plan.channels * cells);
        const int64_t plane =
            plan.image[static_cast<size_t>(r)] * plan.channels + i / cells % plan.channels;
        dx->data<T>()[plane * plan.pixels() + at] += dout.data<T>()[i];
      }
      return Ok();
    });
  });
}

// Calls body(cell of Out, first pixel of the plane it reads, rows, columns, number of pixels).
template <typename T, typename Body>
void for_psroi(const RoiPlan& plan, const RoiAttrs& attrs, int64_t channels, const T* rois,
               Body&& body) {
  const int64_t cells = attrs.pooled_height * attrs.pooled_width;
  for (size_t r = 0; r < plan.image.size(); ++r) {
    for_psroi_cells(
        plan, attrs, rois + 4 * r, [&](int64_t ph, int64_t pw, Span rows, Span columns) {
          const int64_t count = (rows.end - rows.begin) * (columns.end - columns.begin);
          for (int64_t c = 0; c < channels; ++c) {
            const int64_t cell = c * cells + ph * attrs.pooled_width + pw;
            body(static_cast<int64_t>(r) * channels * cells + cell,
                 (plan.image[r] * plan.channels + cell) * plan.pixels(), rows, columns, count);
          }
        });
  }
}

// plan_rois() for X with one channel for each output channel and cell.
StatusOr<RoiPlan> plan_psroi(const KernelContext& ctx, const RoiAttrs& attrs, int64_t channels) {
  MILLRACE_ASSIGN_OR_RETURN(RoiPlan plan, plan_rois(ctx, attrs));
  const int64_t wanted = channels * attrs.pooled_height * attrs.pooled_width;
  if (channels >= 1 && wanted == plan.channels) return plan;
  return ctx.error("X must have {} channels, found {}", wanted, plan.channels);
}

StatusOr<Kernel> psroi_pool(const KernelSetup& op) {
  const ArgIndex out = op.output("Out");
  const auto channels = op.attr<int64_t>("output_channels");
  return Kernel([=, attrs = read_roi_attrs(op)](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const RoiPlan plan, plan_psroi(ctx, attrs, channels));
    const Tensor& x = *ctx.find_in(attrs.x);
    const Tensor& rois = *ctx.find_in(attrs.rois);
    return dispatch<FloatTypes>(x.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      T* const to = ctx.out(out).data<T>();
      for_psroi(plan, attrs, channels, rois.data<T>(),
                [&](int64_t cell, int64_t plane, Span rows, Span columns, int64_t count) {
                  T sum = 0;
                  for (int64_t y = rows.begin; y < rows.end; ++y) {
                    for (int64_t column = columns.begin; column < columns.end; ++column)
                      sum += x.data<T>()[plane + y * plan.width + column];
                  }
                  to[cell] = count == 0 ? T{0} : sum / static_cast<T>(count);
                });
      return Ok();
    });
  });
}

StatusOr<Kernel> psroi_pool_grad(const KernelSetup& op) {
  const ArgIndex out_grad = op.input("Out@GRAD");
  const ArgIndex x_grad = op.output("X@GRAD");
  const auto channels = op.attr<int64_t>("output_channels");
  return Kernel([=, attrs = read_roi_attrs(op)](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const RoiPlan plan, plan_psroi(ctx, attrs, channels));
    MILLRACE_ASSIGN_OR_RETURN(Tensor* const dx,
                              prepare_roi_grad(ctx, attrs, plan, out_grad, x_grad, channels));
    if (dx == nullptr) return Ok();
    const Tensor& rois = *ctx.find_in(attrs.rois);
    const Tensor& dout = *ctx.find_in(out_grad);
    return dispatch<FloatTypes>(dx->dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      for_psroi(plan, attrs, channels, rois.data<T>(),
                [&](int64_t cell, int64_t plane, Span rows, Span columns, int64_t count) {
                  if (count == 0) return;
                  const T share = dout.data<T>()[cell] / static_cast<T>(count);
                  for (int64_t y = rows.begin; y < rows.end; ++y) {
                    for (int64_t column = columns.begin; column < columns.end; ++column)
                      dx->data<T>()[plane + y * plan.width + column] += share;
                  }
                });
      return Ok();
    });
  });
}

}  // namespace
}  // namespace roi_pool_kernels

void add_vision_roi_pool(KernelRegistry& registry) {
  using namespace roi_pool_kernels;
  registry.add("roi_pool", roi_pool);
  registry.add("roi_pool_grad", roi_pool_grad);
  registry.add("psroi_pool", psroi_pool);
  registry.add("psroi_pool_grad", psroi_pool_grad);
}

}  // namespace millrace::kernels
