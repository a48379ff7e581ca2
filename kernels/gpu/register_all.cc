#include "kernels/gpu/register_all.h"

namespace millrace::gpu {

std::unique_ptr<const kernels::KernelRegistry> standard_kernels() {
  auto registry = std::make_unique<kernels::KernelRegistry>();
  add_activation_kernels(*registry);
  add_construct_kernels(*registry);
  add_conv_kernels(*registry);
  add_elementwise_kernels(*registry);
  add_loss_kernels(*registry);
  add_norm_kernels(*registry);
  add_optimizer_kernels(*registry);
  add_pool_kernels(*registry);
  add_product_kernels(*registry);
  add_reduce_kernels(*registry);
  add_softmax_kernels(*registry);
  return registry;
}

}  // namespace millrace::gpu
