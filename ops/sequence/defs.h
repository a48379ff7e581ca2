#pragma once

#include "ops/op_def.h"
#include "ops/registry.h"

namespace millrace::ops {

/// Op families of this folder, one per file.
void add_sequence_shape_ops(OpRegistry& registry);
void add_sequence_padding_ops(OpRegistry& registry);
void add_sequence_compute_ops(OpRegistry& registry);
void add_crf_ops(OpRegistry& registry);
void add_ctc_ops(OpRegistry& registry);
void add_beam_search_ops(OpRegistry& registry);
void add_fused_sequence_ops(OpRegistry& registry);

}  // namespace millrace::ops
