#pragma once

#include <cstdint>
#include <vector>

#include "kernels/kernel.h"

namespace millrace::kernels {

/// Attributes and arguments shared by the ops that pool regions.
struct RoiAttrs {
  int64_t pooled_height = 1;  ///< cells of a region, from top to bottom
  int64_t pooled_width = 1;   ///< cells from left to right
  float scale = 1;            ///< size of X / size of the image that the regions refer to
  ArgIndex x;
  ArgIndex rois;      ///< [regions, 4]: left, top, right, bottom
  ArgIndex rois_num;  ///< number of regions per image; absent: LoD
  const char* x_slot = "X";
  int64_t width = 4;  ///< numbers per region
};
/// \param num_slot  name of the slot with the counts
RoiAttrs read_roi_attrs(const KernelSetup& op, const char* num_slot = "RoisNum");

/// Dims of X, and the image to which each region belongs.
struct RoiPlan {
  int64_t batch = 0;  ///< images
  int64_t channels = 0;
  int64_t height = 0;  ///< pixels of an image
  int64_t width = 0;
  std::vector<int64_t> image;  ///< per region
  [[nodiscard]] int64_t pixels() const { return height * width; }
};
/// Errors: X or ROIs of the wrong form; counts or LoD that do not fit them; coordinates that are
/// not finite or beyond 1e6 after scaling.
StatusOr<RoiPlan> plan_rois(const KernelContext& ctx, const RoiAttrs& attrs);

/// Sets X@GRAD to zero. Errors: Out@GRAD is not [regions, channels, pooled_height, pooled_width].
/// Null if there is nothing to do.
StatusOr<Tensor*> prepare_roi_grad(const KernelContext& ctx, const RoiAttrs& attrs,
                                   const RoiPlan& plan, ArgIndex out_grad, ArgIndex x_grad,
                                   int64_t channels);

}  // namespace millrace::kernels
