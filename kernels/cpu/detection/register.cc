#include "kernels/cpu/detection/detection.h"
#include "kernels/register_all.h"

namespace millrace::kernels {

void add_detection_kernels(KernelRegistry& registry) {
  add_box_coder(registry);
  add_box_decoder(registry);
  add_box_ops(registry);
  add_fpn_proposals(registry);
  add_generate_proposals(registry);
  add_locality_aware_nms(registry);
  add_mask_labels(registry);
  add_matching(registry);
  add_matrix_nms(registry);
  add_multiclass_nms(registry);
  add_priors(registry);
  add_proposal_labels(registry);
  add_retinanet_output(registry);
  add_rpn_target_assign(registry);
  add_yolo_box(registry);
  add_yolov3_loss(registry);
}

}  // namespace millrace::kernels
