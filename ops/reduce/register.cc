#include "ops/reduce/defs.h"
#include "ops/register_all.h"

namespace millrace::ops {

void register_reduce(OpRegistry& registry) {
  add_reduce_ops(registry);
  add_scan_ops(registry);
  add_total_ops(registry);
  registry.add(clip_by_norm());
  registry.add(logsumexp());
  registry.add(norm());
  registry.add(p_norm());
  registry.add(histogram());
  registry.add(segment_pool());
}

}  // namespace millrace::ops
