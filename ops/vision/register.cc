#include "ops/register_all.h"
#include "ops/vision/defs.h"

namespace millrace::ops {

void register_vision(OpRegistry& registry) {
  add_grid_ops(registry);
  add_rearrange_ops(registry);
  add_roi_ops(registry);
  add_warped_roi_ops(registry);
  add_focus_ops(registry);
}

}  // namespace millrace::ops
