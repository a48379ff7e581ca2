#pragma once

#include <memory>

#include "kernels/registry.h"

namespace millrace::kernels {

/// The registry with every CPU kernel of this build.
std::unique_ptr<KernelRegistry> standard_kernels();

// One function a family; each adds the kernels of its folder.
void add_math_kernels(KernelRegistry& registry);

}  // namespace millrace::kernels
