#pragma once

#include "ops/op_def.h"
#include "ops/registry.h"

namespace millrace::ops {

/// Op families of this folder, one per file.
void add_lod_rnn_ops(OpRegistry& registry);
void add_dense_rnn_ops(OpRegistry& registry);
void add_fused_rnn_ops(OpRegistry& registry);

}  // namespace millrace::ops
