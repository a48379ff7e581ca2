#include "ops/register_all.h"

namespace millrace::ops {

void register_all(OpRegistry& registry) {
  register_math(registry);
}

}  // namespace millrace::ops
