#include "ops/elementwise/defs.h"
#include "ops/register_all.h"

namespace millrace::ops {

void register_elementwise(OpRegistry& registry) {
  add_elementwise_ops(registry);
  add_compare_ops(registry);
  registry.add(elementwise_chain());
  registry.add(minus());
  add_all_equal_ops(registry);
}

}  // namespace millrace::ops
