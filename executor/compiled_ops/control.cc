#include "executor/compiled_ops/control.h"

namespace millrace::executor {

void add_standard_controls(ControlRegistry& registry) {
  add_collective(registry);
  add_conditional_block(registry);
  add_feed_fetch(registry);
  add_files(registry);
  add_recurrent(registry);
  add_ring_setup(registry);
  add_while(registry);
}

}  // namespace millrace::executor
