#pragma once

#include "kernels/registry.h"

namespace millrace::kernels {

// Each function adds the ops of the file it is named after, including gradients.
void add_along_axis(KernelRegistry& registry);
void add_arg_extreme(KernelRegistry& registry);
void add_combine(KernelRegistry& registry);
void add_concat(KernelRegistry& registry);
void add_crop(KernelRegistry& registry);
void add_diagonal(KernelRegistry& registry);
void add_expand(KernelRegistry& registry);
void add_flatten_concat(KernelRegistry& registry);
void add_gather(KernelRegistry& registry);
void add_gather_tree(KernelRegistry& registry);
void add_index_pick(KernelRegistry& registry);
void add_one_hot(KernelRegistry& registry);
void add_order(KernelRegistry& registry);
void add_pad(KernelRegistry& registry);
void add_pad_spatial(KernelRegistry& registry);
void add_random_crop(KernelRegistry& registry);
void add_reshape(KernelRegistry& registry);
void add_reverse(KernelRegistry& registry);
void add_scatter(KernelRegistry& registry);
void add_shape(KernelRegistry& registry);
void add_slice(KernelRegistry& registry);
void add_stack(KernelRegistry& registry);
void add_transpose(KernelRegistry& registry);
void add_unique(KernelRegistry& registry);
void add_where(KernelRegistry& registry);
void add_diagonals(KernelRegistry& registry);

}  // namespace millrace::kernels
