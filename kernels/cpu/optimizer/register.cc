#include "kernels/cpu/optimizer/optimizer.h"
#include "kernels/register_all.h"

namespace millrace::kernels {

void add_optimizer_kernels(KernelRegistry& registry) {
  add_adam_kernels(registry);
  add_adaptive_kernels(registry);
  add_dpsgd_kernel(registry);
  add_lamb_kernel(registry);
  add_lars_kernel(registry);
  add_loss_scaling_kernels(registry);
  add_plain_kernels(registry);
  add_proximal_kernels(registry);
}

}  // namespace millrace::kernels
