#pragma once

#include "kernels/registry.h"

namespace millrace::kernels {

// Kernels of ops/math, a function a file.
void add_scale(KernelRegistry& registry);

}  // namespace millrace::kernels
