#pragma once

#include "kernels/registry.h"

namespace millrace::kernels {

// Kernels of those ops in ops/collective that need no other process, one function per file.
void add_coalesce(KernelRegistry& registry);

}  // namespace millrace::kernels
