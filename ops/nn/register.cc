#include "ops/nn/defs.h"
#include "ops/register_all.h"

namespace millrace::ops {

void register_nn(OpRegistry& registry) {
  add_attention_ops(registry);
  add_batch_norm_ops(registry);
  add_channel_ops(registry);
  add_conv_ops(registry);
  add_conv_transpose_ops(registry);
  add_data_norm_ops(registry);
  add_interp_ops(registry);
  add_norm_ops(registry);
  add_pool_ops(registry);
  add_row_ops(registry);
  add_unfold_ops(registry);
  registry.add(deformable_conv());
  registry.add(deformable_conv_v1());
  registry.add(spp());
  registry.add(unpool());
}

}  // namespace millrace::ops
