#include "ops/collective/defs.h"
#include "ops/register_all.h"

namespace millrace::ops {

void register_collective(OpRegistry& registry) {
  add_collective_ops(registry);
  add_communicator_ops(registry);
  add_exchange_ops(registry);
}

}  // namespace millrace::ops
