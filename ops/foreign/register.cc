#include "ops/foreign/defs.h"
#include "ops/register_all.h"

namespace millrace::ops {

void register_foreign(OpRegistry& registry) {
  add_foreign_ops(registry);
}

}  // namespace millrace::ops
