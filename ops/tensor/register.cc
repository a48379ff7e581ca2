#include "ops/register_all.h"
#include "ops/tensor/defs.h"

namespace millrace::ops {

void register_tensor(OpRegistry& registry) {
  add_along_axis_ops(registry);
  add_arg_extreme_ops(registry);
  add_combine_ops(registry);
  add_crop_ops(registry);
  add_diagonal_ops(registry);
  add_expand_ops(registry);
  add_flatten_ops(registry);
  add_gather_ops(registry);
  add_one_hot_ops(registry);
  add_order_ops(registry);
  add_pad_ops(registry);
  add_reshape_ops(registry);
  add_reverse_ops(registry);
  add_scatter_ops(registry);
  add_shape_ops(registry);
  add_slicing_ops(registry);
  add_squeeze_ops(registry);
  add_stack_ops(registry);
  add_transpose_ops(registry);
  add_unique_ops(registry);
  add_where_ops(registry);
  registry.add(concat());
  registry.add(fusion_transpose_flatten_concat());
  registry.add(random_crop());
  registry.add(shard_index());
  registry.add(split());
  add_diagonals_ops(registry);
}

}  // namespace millrace::ops
