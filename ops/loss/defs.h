#pragma once

#include "ops/op_def.h"
#include "ops/registry.h"

namespace millrace::ops {

/// Losses that compare two tensors element by element and keep their shape.
void add_elementwise_losses(OpRegistry& registry);
/// Losses of fluid 1.x with one value per row.
void add_row_losses(OpRegistry& registry);
/// Losses that rank two scores.
void add_rank_losses(OpRegistry& registry);
/// cross_entropy, bpr_loss and the second form of cross_entropy with its gradient op.
void add_cross_entropy_ops(OpRegistry& registry);

OpDef center_loss();
OpDef kldiv_loss();
OpDef label_smooth();
OpDef nll_loss();
OpDef softmax_with_cross_entropy();

}  // namespace millrace::ops
