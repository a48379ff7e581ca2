#include "kernels/cpu/nn/nn.h"
#include "kernels/register_all.h"

namespace millrace::kernels {

void add_nn_kernels(KernelRegistry& registry) {
  add_affine_channel(registry);
  add_batch_norm(registry);
  add_batch_norm_grad(registry);
  add_conv(registry);
  add_conv_transpose(registry);
  add_group_norm(registry);
  add_interp(registry);
  add_layer_norm(registry);
  add_lrn(registry);
  add_maxout(registry);
  add_pool(registry);
  add_pool_with_index(registry);
}

}  // namespace millrace::kernels
