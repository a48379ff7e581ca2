#include "ops/math/defs.h"
#include "ops/register_all.h"

namespace millrace::ops {

void register_math(OpRegistry& registry) {
  registry.add(scale());
}

}  // namespace millrace::ops
