#pragma once

#include "ops/infer_helpers.h"
#include "ops/op_def.h"

namespace millrace::ops {

/// Sets the kind of a meta to SELECTED_ROWS if Out is declared so: an initializer may fill a table
/// of a server, whose rows the kernel sets.
VarMeta as_declared(const InferContext& ctx, VarMeta meta);
/// Inference of ops that create Out from attributes shape and dtype.
/// Errors: dtype is not an element type, or a dim is below -1.
Status infer_created(InferContext& ctx);
/// Inference of the *_batch_size_like ops: attribute shape, with dim output_dim_idx replaced by dim
/// input_dim_idx of Input. If Input has LoD, the batch size is its number of sequences, which is
/// known at run time only.
Status infer_batch_size_like(InferContext& ctx);

/// Adds Out, and the inputs and attributes that determine its shape.
OpDef& with_shape_and_dtype(OpDef& def, int32_t dtype);
OpDef& with_batch_size_like(OpDef& def);

}  // namespace millrace::ops
