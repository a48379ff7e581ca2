#pragma once

#include "kernels/registry.h"

namespace millrace::kernels {

// Each function adds the ops of the file it is named after, including gradients.
void add_hierarchical_sigmoid(KernelRegistry& registry);
void add_lookup(KernelRegistry& registry);
void add_nce(KernelRegistry& registry);
void add_pooled_lookup(KernelRegistry& registry);
void add_selected_rows(KernelRegistry& registry);
void add_sample_logits(KernelRegistry& registry);

}  // namespace millrace::kernels
