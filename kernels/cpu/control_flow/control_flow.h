#pragma once

#include "kernels/registry.h"

namespace millrace::kernels {

// Each function adds the ops of the file it is named after, including gradients.
void add_arrays(KernelRegistry& registry);
void add_assign(KernelRegistry& registry);
void add_branches(KernelRegistry& registry);
void add_rank_tables(KernelRegistry& registry);
void add_reports(KernelRegistry& registry);

}  // namespace millrace::kernels
