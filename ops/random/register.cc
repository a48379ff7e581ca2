#include "ops/random/defs.h"
#include "ops/register_all.h"

namespace millrace::ops {

void register_random(OpRegistry& registry) {
  add_draw_ops(registry);
  add_fill_ops(registry);
  add_sequence_of_number_ops(registry);
  registry.add(dropout());
  add_sample_ops(registry);
}

}  // namespace millrace::ops
