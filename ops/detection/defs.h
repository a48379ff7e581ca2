#pragma once

#include "ops/op_def.h"
#include "ops/registry.h"

namespace millrace::ops {

/// Op definitions of this folder: ops on boxes of object detectors. A box is left, top, right,
/// bottom.

/// iou_similarity, box_coder, box_clip, polygon_box_transform, box_decoder_and_assign
void add_box_ops(OpRegistry& registry);
/// bipartite_match, target_assign, mine_hard_examples
void add_matching_ops(OpRegistry& registry);
/// multiclass_nms, multiclass_nms2, multiclass_nms3, matrix_nms, locality_aware_nms,
/// retinanet_detection_output
void add_nms_ops(OpRegistry& registry);
/// prior_box, density_prior_box, anchor_generator
void add_prior_ops(OpRegistry& registry);
/// generate_proposals, generate_proposals_v2, collect_fpn_proposals, distribute_fpn_proposals
void add_proposal_ops(OpRegistry& registry);
/// rpn_target_assign, retinanet_target_assign, generate_proposal_labels, generate_mask_labels
void add_target_ops(OpRegistry& registry);
/// yolo_box, yolov3_loss
void add_yolo_ops(OpRegistry& registry);

}  // namespace millrace::ops
