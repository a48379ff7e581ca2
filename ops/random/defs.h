#pragma once

#include "ops/op_def.h"
#include "ops/registry.h"

namespace millrace::ops {

/// Ops that fill a tensor with one value or with given values.
void add_fill_ops(OpRegistry& registry);
/// Ops that draw numbers.
void add_draw_ops(OpRegistry& registry);
/// range and linspace.
void add_sequence_of_number_ops(OpRegistry& registry);
OpDef dropout();
/// empty, bernoulli, seed, shuffle_batch
void add_sample_ops(OpRegistry& registry);

}  // namespace millrace::ops
