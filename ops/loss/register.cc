#include "ops/loss/defs.h"
#include "ops/register_all.h"

namespace millrace::ops {

void register_loss(OpRegistry& registry) {
  add_cross_entropy_ops(registry);
  add_elementwise_losses(registry);
  add_rank_losses(registry);
  add_row_losses(registry);
  registry.add(center_loss());
  registry.add(kldiv_loss());
  registry.add(label_smooth());
  registry.add(nll_loss());
  registry.add(softmax_with_cross_entropy());
}

}  // namespace millrace::ops
