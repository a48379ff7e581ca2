#pragma once

#include "ops/infer_helpers.h"
#include "ops/op_def.h"

namespace millrace::ops {

/// What an initialiser makes is what its var is declared as: tables of servers are selected rows,
/// whose rows the kernel sets.
VarMeta as_declared(const InferContext& ctx, VarMeta meta);
/// Inference of ops that create Out from attributes shape and dtype.
/// Errors: dtype is no element type, a dim below -1.
Status infer_created(InferContext& ctx);
/// Inference of the *_batch_size_like ops: shape, with dim output_dim_idx taken from dim
/// input_dim_idx of Input; the number of sequences, known at run time only, if Input has LoD.
Status infer_batch_size_like(InferContext& ctx);

/// Adds Out, and the inputs and attributes from which the shape is taken.
OpDef& with_shape_and_dtype(OpDef& def, int32_t dtype);
OpDef& with_batch_size_like(OpDef& def);

}  // namespace millrace::ops
