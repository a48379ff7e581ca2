#include "ops/io/defs.h"
#include "ops/register_all.h"

namespace millrace::ops {

void register_io(OpRegistry& registry) {
  add_feed_ops(registry);
  add_file_ops(registry);
  add_reader_ops(registry);
}

}  // namespace millrace::ops
