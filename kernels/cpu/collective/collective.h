#pragma once

#include "kernels/registry.h"

namespace millrace::kernels {

// Kernels of ops/collective that need no other process, a function a file.
void add_coalesce(KernelRegistry& registry);

}  // namespace millrace::kernels
