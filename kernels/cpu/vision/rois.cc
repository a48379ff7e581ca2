#include "kernels/cpu/vision/rois.h"

#include <cmath>

#include "kernels/cpu/needed.h"
#include "kernels/cpu/nn/window.h"
#include "kernels/dispatch.h"

namespace millrace::kernels {
namespace rois_kernels {
namespace {

// Number of regions of each image, read from a tensor.
StatusOr<std::vector<int64_t>> counts_of(const KernelContext& ctx, const Tensor& tensor) {
  std::vector<int64_t> counts;
  MILLRACE_RETURN_IF_ERROR(dispatch<IntTypes>(tensor.dtype(), [&](auto tag) {
    for (const auto count : tensor.values<typename decltype(tag)::type>()) counts.push_back(count);
    return Ok();
  }));
  for (const int64_t count : counts) {
    if (count < 0) return ctx.error("the number of regions of an image is {}", count);
  }
  return counts;
}

Status check_coordinates(const KernelContext& ctx, const Tensor& rois, float scale) {
  return dispatch<FloatTypes>(rois.dtype(), [&](auto tag) -> Status {
    for (const auto value : rois.values<typename decltype(tag)::type>()) {
      if (!(std::fabs(static_cast<double>(value) * scale) <= 1e6))
        return ctx.error("ROIs has coordinate {}, expected at most 1e6 after scaling", value);
    }
    return Ok();
  });
}

}  // namespace
}  // namespace rois_kernels

RoiAttrs read_roi_attrs(const KernelSetup& op, const char* num_slot) {
  return {op.attr<int64_t>("pooled_height"),
          op.attr<int64_t>("pooled_width"),
          op.attr<float>("spatial_scale"),
          op.input("X"),
          op.input("ROIs"),
          op.input(num_slot)};
}

StatusOr<RoiPlan> plan_rois(const KernelContext& ctx, const RoiAttrs& attrs) {
  using namespace rois_kernels;
  MILLRACE_ASSIGN_OR_RETURN(const Tensor* const x, needed(ctx, attrs.x, attrs.x_slot));
  MILLRACE_ASSIGN_OR_RETURN(const Tensor* const rois, needed(ctx, attrs.rois, "ROIs"));
  if (x->rank() != 4 || rois->rank() != 2 || rois->dim(1) != attrs.width ||
      rois->dtype() != x->dtype() || attrs.pooled_height < 1 || attrs.pooled_width < 1) {
    return ctx.error(
        "{} must hold images and ROIs be [regions, {}] of the same type, found {} and {}",
        attrs.x_slot, attrs.width, describe(*x), describe(*rois));
  }
  if (!(attrs.scale > 0))
    return ctx.error("attribute 'spatial_scale' is {}, expected a number above 0", attrs.scale);
  RoiPlan plan{x->dim(0), x->dim(1), x->dim(2), x->dim(3), {}};
  std::vector<int64_t> counts;
  if (const Tensor* const given = ctx.find_in(attrs.rois_num)) {
    MILLRACE_ASSIGN_OR_RETURN(counts, counts_of(ctx, *given));
  } else if (!rois->lod().empty()) {
    const auto offsets = rois->lod().last();
    for (size_t i = 0; i + 1 < offsets.size(); ++i) counts.push_back(offsets[i + 1] - offsets[i]);
  } else {
    return ctx.error("ROIs must have a LoD where the regions of each image are not counted");
  }
  int64_t total = 0;
  for (const int64_t count : counts) {
    if (count > rois->dim(0)) total = rois->dim(0);
    total += count;
  }
  if (static_cast<int64_t>(counts.size()) != plan.batch || total != rois->dim(0)) {
    return ctx.error("{} images have {} regions, expected {} images and {} regions", counts.size(),
                     total, plan.batch, rois->dim(0));
  }
  for (size_t n = 0; n < counts.size(); ++n)
    plan.image.insert(plan.image.end(), static_cast<size_t>(counts[n]), static_cast<int64_t>(n));
  MILLRACE_RETURN_IF_ERROR(check_coordinates(ctx, *rois, attrs.scale));
  return plan;
}

StatusOr<Tensor*> prepare_roi_grad(const KernelContext& ctx, const RoiAttrs& attrs,
                                   const RoiPlan& plan, ArgIndex out_grad, ArgIndex x_grad,
                                   int64_t channels) {
  const Tensor& x = *ctx.find_in(attrs.x);
  MILLRACE_ASSIGN_OR_RETURN(Tensor* const dx, result_like(ctx, x_grad, x));
  if (dx == nullptr) return dx;
  fill_zero(*dx);
  const Tensor* const dout = ctx.find_in(out_grad);
  if (dout == nullptr) return static_cast<Tensor*>(nullptr);
  const auto regions = static_cast<int64_t>(plan.image.size());
  const int64_t wanted = regions * channels * attrs.pooled_height * attrs.pooled_width;
  if (dout->dtype() == x.dtype() && dout->numel() == wanted) return dx;
  return ctx.error("Out@GRAD must be [{}, {}, {}, {}], found {}", regions, channels,
                   attrs.pooled_height, attrs.pooled_width, describe(*dout));
}

}  // namespace millrace::kernels
