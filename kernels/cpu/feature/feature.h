#pragma once

#include "kernels/registry.h"

namespace millrace::kernels {

// Kernels of ops/feature, one function per file.
void add_average_kernels(KernelRegistry& registry);
void add_batch_fc_kernels(KernelRegistry& registry);
void add_bilinear_kernels(KernelRegistry& registry);
void add_filter_by_instag_kernels(KernelRegistry& registry);
void add_fused_elementwise_kernels(KernelRegistry& registry);
void add_pyramid_hash_kernels(KernelRegistry& registry);
void add_ranking_kernels(KernelRegistry& registry);
void add_sampling_kernels(KernelRegistry& registry);
void add_fused_layer_kernels(KernelRegistry& registry);
void add_match_matrix_kernels(KernelRegistry& registry);
void add_rank_attention_kernels(KernelRegistry& registry);
void add_tree_kernels(KernelRegistry& registry);
void add_var_conv_kernels(KernelRegistry& registry);

}  // namespace millrace::kernels
