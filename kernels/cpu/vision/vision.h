#pragma once

#include "kernels/registry.h"

namespace millrace::kernels {

// Kernels of ops/vision, one function per file.
void add_affine_grid(KernelRegistry& registry);
void add_deformable_psroi_pooling(KernelRegistry& registry);
void add_grid_sampler(KernelRegistry& registry);
void add_prroi_pool(KernelRegistry& registry);
void add_rearrange(KernelRegistry& registry);
void add_roi_align(KernelRegistry& registry);
void add_roi_perspective_transform(KernelRegistry& registry);
void add_roi_pool(KernelRegistry& registry);
void add_similarity_focus(KernelRegistry& registry);
void add_bilateral_slice(KernelRegistry& registry);

}  // namespace millrace::kernels
