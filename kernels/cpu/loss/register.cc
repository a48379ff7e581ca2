#include "kernels/cpu/loss/loss.h"
#include "kernels/register_all.h"

namespace millrace::kernels {

void add_loss_kernels(KernelRegistry& registry) {
  add_cross_entropy_kernels(registry);
  add_distribution_loss_kernels(registry);
  add_elementwise_loss_kernels(registry);
  add_nll_loss_kernels(registry);
  add_rank_loss_kernels(registry);
  add_row_loss_kernels(registry);
  add_sigmoid_cross_entropy_kernels(registry);
  add_sigmoid_focal_loss_kernels(registry);
  add_softmax_with_cross_entropy_kernels(registry);
}

}  // namespace millrace::kernels
