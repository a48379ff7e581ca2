#include "kernels/cpu/tensor/tensor.h"
#include "kernels/register_all.h"

namespace millrace::kernels {

void add_tensor_kernels(KernelRegistry& registry) {
  add_along_axis(registry);
  add_arg_extreme(registry);
  add_combine(registry);
  add_concat(registry);
  add_crop(registry);
  add_diagonal(registry);
  add_expand(registry);
  add_flatten_concat(registry);
  add_gather(registry);
  add_gather_tree(registry);
  add_index_pick(registry);
  add_one_hot(registry);
  add_order(registry);
  add_pad(registry);
  add_pad_spatial(registry);
  add_random_crop(registry);
  add_reshape(registry);
  add_reverse(registry);
  add_scatter(registry);
  add_shape(registry);
  add_slice(registry);
  add_stack(registry);
  add_transpose(registry);
  add_unique(registry);
  add_where(registry);
  add_diagonals(registry);
}

}  // namespace millrace::kernels
