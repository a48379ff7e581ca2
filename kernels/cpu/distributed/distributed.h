#pragma once

#include "kernels/registry.h"

namespace millrace::kernels {

// Each adds the ops of the file it is named after: those of the distributed programs that only
// compute. What talks to other processes is not here.
void add_dgc(KernelRegistry& registry);
void add_ids(KernelRegistry& registry);
void add_slices(KernelRegistry& registry);
void add_sparse_tables(KernelRegistry& registry);

}  // namespace millrace::kernels
