#pragma once

#include "kernels/registry.h"

namespace millrace::kernels {

// Kernels of ops/detection, one function per file.
void add_box_coder(KernelRegistry& registry);
void add_box_decoder(KernelRegistry& registry);
void add_box_ops(KernelRegistry& registry);
void add_fpn_proposals(KernelRegistry& registry);
void add_generate_proposals(KernelRegistry& registry);
void add_locality_aware_nms(KernelRegistry& registry);
void add_mask_labels(KernelRegistry& registry);
void add_matching(KernelRegistry& registry);
void add_matrix_nms(KernelRegistry& registry);
void add_multiclass_nms(KernelRegistry& registry);
void add_priors(KernelRegistry& registry);
void add_proposal_labels(KernelRegistry& registry);
void add_retinanet_output(KernelRegistry& registry);
void add_rpn_target_assign(KernelRegistry& registry);
void add_yolo_box(KernelRegistry& registry);
void add_yolov3_loss(KernelRegistry& registry);

}  // namespace millrace::kernels
