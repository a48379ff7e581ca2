#pragma once

#include "kernels/registry.h"

namespace millrace::kernels {

// Kernels of ops/nn, one function per file.
void add_affine_channel(KernelRegistry& registry);
void add_batch_norm(KernelRegistry& registry);
void add_batch_norm_grad(KernelRegistry& registry);
void add_conv(KernelRegistry& registry);
void add_conv_fusion(KernelRegistry& registry);
void add_conv_shift(KernelRegistry& registry);
void add_conv_transpose(KernelRegistry& registry);
void add_data_norm(KernelRegistry& registry);
void add_deformable_conv(KernelRegistry& registry);
void add_fused_conv(KernelRegistry& registry);
void add_fsp(KernelRegistry& registry);
void add_group_norm(KernelRegistry& registry);
void add_im2sequence(KernelRegistry& registry);
void add_inplace_abn(KernelRegistry& registry);
void add_interp(KernelRegistry& registry);
void add_layer_norm(KernelRegistry& registry);
void add_lrn(KernelRegistry& registry);
void add_maxout(KernelRegistry& registry);
void add_pool(KernelRegistry& registry);
void add_pool_with_index(KernelRegistry& registry);
void add_position_encoding_ops(KernelRegistry& registry);
void add_row_conv(KernelRegistry& registry);
void add_spectral_norm(KernelRegistry& registry);
void add_spp(KernelRegistry& registry);
void add_sync_batch_norm(KernelRegistry& registry);
void add_tree_conv(KernelRegistry& registry);
void add_unfold(KernelRegistry& registry);
void add_unpool(KernelRegistry& registry);

}  // namespace millrace::kernels
