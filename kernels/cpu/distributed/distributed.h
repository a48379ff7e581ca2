#pragma once

#include "kernels/registry.h"

namespace millrace::kernels {

// Each function adds the ops of the file it is named after. These are the ops of distributed
// programs that only compute; ops that communicate with other processes are elsewhere.
void add_dgc(KernelRegistry& registry);
void add_ids(KernelRegistry& registry);
void add_slices(KernelRegistry& registry);
void add_sparse_tables(KernelRegistry& registry);

}  // namespace millrace::kernels
