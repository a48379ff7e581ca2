#include "ops/detection/defs.h"
#include "ops/register_all.h"

namespace millrace::ops {

void register_detection(OpRegistry& registry) {
  add_box_ops(registry);
  add_matching_ops(registry);
  add_nms_ops(registry);
  add_prior_ops(registry);
  add_proposal_ops(registry);
  add_target_ops(registry);
  add_yolo_ops(registry);
}

}  // namespace millrace::ops
