#include "ops/feature/defs.h"
#include "ops/register_all.h"

namespace millrace::ops {

void register_feature(OpRegistry& registry) {
  add_ranking_ops(registry);
  add_fused_ops(registry);
  add_average_ops(registry);
  add_fused_layer_ops(registry);
  add_recommendation_ops(registry);
}

}  // namespace millrace::ops
