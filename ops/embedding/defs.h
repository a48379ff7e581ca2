#pragma once

#include "ops/op_def.h"
#include "ops/registry.h"

namespace millrace::ops {

/// Op families of this folder, one per file.
void add_lookup_ops(OpRegistry& registry);
void add_pooled_lookup_ops(OpRegistry& registry);
void add_sampled_loss_ops(OpRegistry& registry);
void add_selected_rows_ops(OpRegistry& registry);
void add_sample_logits_ops(OpRegistry& registry);

}  // namespace millrace::ops
