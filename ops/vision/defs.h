#pragma once

#include "ops/op_def.h"
#include "ops/registry.h"

namespace millrace::ops {

/// Op definitions of this folder: ops that sample, pool and rearrange the pixels of images.

/// affine_grid, grid_sampler
void add_grid_ops(OpRegistry& registry);
/// pixel_shuffle, shuffle_channel, space_to_depth, temporal_shift
void add_rearrange_ops(OpRegistry& registry);
/// roi_align, roi_pool, psroi_pool, prroi_pool
void add_roi_ops(OpRegistry& registry);
/// deformable_psroi_pooling, roi_perspective_transform
void add_warped_roi_ops(OpRegistry& registry);
/// similarity_focus, bilateral_slice
void add_focus_ops(OpRegistry& registry);

}  // namespace millrace::ops
