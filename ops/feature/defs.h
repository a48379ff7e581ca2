#pragma once

#include "ops/op_def.h"
#include "ops/registry.h"

namespace millrace::ops {

/// Op families of this folder, one per file.
void add_ranking_ops(OpRegistry& registry);
void add_fused_ops(OpRegistry& registry);
void add_average_ops(OpRegistry& registry);
void add_fused_layer_ops(OpRegistry& registry);
void add_recommendation_ops(OpRegistry& registry);

}  // namespace millrace::ops
