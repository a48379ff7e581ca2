#include "ops/embedding/defs.h"
#include "ops/register_all.h"

namespace millrace::ops {

void register_embedding(OpRegistry& registry) {
  add_lookup_ops(registry);
  add_pooled_lookup_ops(registry);
  add_sampled_loss_ops(registry);
  add_selected_rows_ops(registry);
  add_sample_logits_ops(registry);
}

}  // namespace millrace::ops
