#include "kernels/cpu/vision/vision.h"
#include "kernels/register_all.h"

namespace millrace::kernels {

void add_vision_kernels(KernelRegistry& registry) {
  add_affine_grid(registry);
  add_deformable_psroi_pooling(registry);
  add_grid_sampler(registry);
  add_prroi_pool(registry);
  add_rearrange(registry);
  add_roi_align(registry);
  add_roi_perspective_transform(registry);
  add_roi_pool(registry);
  add_similarity_focus(registry);
  add_bilateral_slice(registry);
}

}  // namespace millrace::kernels
