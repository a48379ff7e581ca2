#include "ops/activation/defs.h"
#include "ops/register_all.h"

namespace millrace::ops {

void register_activation(OpRegistry& registry) {
  add_activation_ops(registry);
  add_function_ops(registry);
  registry.add(log_softmax());
  registry.add(prelu());
  registry.add(sign());
  registry.add(softmax());
}

}  // namespace millrace::ops
