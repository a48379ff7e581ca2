#include "executor/control.h"

namespace millrace::executor {

void add_standard_controls(ControlRegistry& registry) {
  add_feed_fetch(registry);
}

}  // namespace millrace::executor
