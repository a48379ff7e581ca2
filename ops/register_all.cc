#include "ops/register_all.h"

namespace millrace::ops {

void register_all(OpRegistry& registry) {
  register_activation(registry);
  register_elementwise(registry);
  register_loss(registry);
  register_math(registry);
  register_metric(registry);
  register_optimizer(registry);
  register_random(registry);
  register_reduce(registry);
}

}  // namespace millrace::ops
