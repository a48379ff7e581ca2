#include "kernels/cpu/nn/nn.h"
#include "kernels/register_all.h"

namespace millrace::kernels {

void add_nn_kernels(KernelRegistry& registry) {
  add_affine_channel(registry);
  add_batch_norm(registry);
  add_batch_norm_grad(registry);
  add_conv(registry);
  add_conv_fusion(registry);
  add_fused_conv(registry);
  add_conv_shift(registry);
  add_conv_transpose(registry);
  add_data_norm(registry);
  add_deformable_conv(registry);
  add_fsp(registry);
  add_group_norm(registry);
  add_im2sequence(registry);
  add_inplace_abn(registry);
  add_interp(registry);
  add_layer_norm(registry);
  add_lrn(registry);
  add_maxout(registry);
  add_pool(registry);
  add_pool_with_index(registry);
  add_position_encoding_ops(registry);
  add_row_conv(registry);
  add_spectral_norm(registry);
  add_spp(registry);
  add_sync_batch_norm(registry);
  add_tree_conv(registry);
  add_unfold(registry);
  add_unpool(registry);
}

}  // namespace millrace::kernels
