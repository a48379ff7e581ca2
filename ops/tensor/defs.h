#pragma once

#include "ops/op_def.h"
#include "ops/registry.h"

namespace millrace::ops {

/// Op definitions of this folder: ops that move, select and reshape elements. One per file; a
/// family adds several ops.
OpDef concat();
OpDef fusion_transpose_flatten_concat();
OpDef random_crop();
OpDef shard_index();
OpDef split();

/// take_along_axis, put_along_axis
void add_along_axis_ops(OpRegistry& registry);
/// arg_max, arg_min
void add_arg_extreme_ops(OpRegistry& registry);
/// meshgrid, multiplex, partial_concat, partial_sum
void add_combine_ops(OpRegistry& registry);
/// crop, crop_tensor
void add_crop_ops(OpRegistry& registry);
/// diag, diag_v2, eye, fill_diagonal, tril_triu
void add_diagonal_ops(OpRegistry& registry);
/// expand, expand_as, expand_v2, expand_as_v2, tile
void add_expand_ops(OpRegistry& registry);
/// flatten, flatten2, flatten_contiguous_range
void add_flatten_ops(OpRegistry& registry);
/// gather, gather_nd, gather_tree, index_sample, index_select
void add_gather_ops(OpRegistry& registry);
/// one_hot, one_hot_v2
void add_one_hot_ops(OpRegistry& registry);
/// argsort, kthvalue, top_k, top_k_v2
void add_order_ops(OpRegistry& registry);
/// pad, pad2d, pad3d, pad_constant_like
void add_pad_ops(OpRegistry& registry);
/// reshape, reshape2
void add_reshape_ops(OpRegistry& registry);
/// flip, reverse, roll
void add_reverse_ops(OpRegistry& registry);
/// scatter, scatter_nd_add
void add_scatter_ops(OpRegistry& registry);
/// shape, size
void add_shape_ops(OpRegistry& registry);
/// slice, strided_slice
void add_slicing_ops(OpRegistry& registry);
/// squeeze, squeeze2, unsqueeze, unsqueeze2
void add_squeeze_ops(OpRegistry& registry);
/// stack, unstack, unbind
void add_stack_ops(OpRegistry& registry);
/// transpose, transpose2
void add_transpose_ops(OpRegistry& registry);
/// unique, unique_with_counts
void add_unique_ops(OpRegistry& registry);
/// where, where_index, masked_select
void add_where_ops(OpRegistry& registry);
/// trace, diag_embed
void add_diagonals_ops(OpRegistry& registry);

}  // namespace millrace::ops
