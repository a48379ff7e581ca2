#pragma once

#include "ops/op_def.h"
#include "ops/registry.h"

namespace millrace::ops {

/// Op definitions of this folder: network layers over images and sequences. One per file; a family
/// adds several ops.
OpDef deformable_conv();
OpDef deformable_conv_v1();
OpDef spp();
OpDef unpool();

/// batch_norm, sync_batch_norm, inplace_abn and their gradient ops
void add_batch_norm_ops(OpRegistry& registry);
/// multi_head_attention
void add_attention_ops(OpRegistry& registry);
/// affine_channel, lrn, maxout
void add_channel_ops(OpRegistry& registry);
/// conv2d, depthwise_conv2d, conv3d, fused_conv2d, conv2d_fusion, fused_conv2d_add_act
void add_conv_ops(OpRegistry& registry);
/// conv2d_transpose, depthwise_conv2d_transpose, conv3d_transpose
void add_conv_transpose_ops(OpRegistry& registry);
/// data_norm, data_norm_grad
void add_data_norm_ops(OpRegistry& registry);
/// linear, bilinear, trilinear, bicubic and nearest interpolation
void add_interp_ops(OpRegistry& registry);
/// layer_norm, group_norm, instance_norm
void add_norm_ops(OpRegistry& registry);
/// pool2d, pool3d, max_pool2d_with_index, max_pool3d_with_index
void add_pool_ops(OpRegistry& registry);
/// add_position_encoding, row_conv, conv_shift, fsp, spectral_norm, tree_conv
void add_row_ops(OpRegistry& registry);
/// unfold, im2sequence
void add_unfold_ops(OpRegistry& registry);

}  // namespace millrace::ops
