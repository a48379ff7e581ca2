#include "kernels/cpu/feature/feature.h"
#include "kernels/register_all.h"

namespace millrace::kernels {

void add_feature_kernels(KernelRegistry& registry) {
  add_average_kernels(registry);
  add_batch_fc_kernels(registry);
  add_bilinear_kernels(registry);
  add_filter_by_instag_kernels(registry);
  add_fused_elementwise_kernels(registry);
  add_pyramid_hash_kernels(registry);
  add_ranking_kernels(registry);
  add_sampling_kernels(registry);
  add_fused_layer_kernels(registry);
  add_match_matrix_kernels(registry);
  add_rank_attention_kernels(registry);
  add_tree_kernels(registry);
  add_var_conv_kernels(registry);
}

}  // namespace millrace::kernels
