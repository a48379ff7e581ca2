#include "ops/optimizer/defs.h"
#include "ops/register_all.h"

namespace millrace::ops {

void register_optimizer(OpRegistry& registry) {
  add_adam_ops(registry);
  add_merged_update_ops(registry);
  add_update_ops(registry);
  registry.add(check_finite_and_unscale());
  registry.add(update_loss_scaling());
}

}  // namespace millrace::ops
