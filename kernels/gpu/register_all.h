#pragma once

#include <memory>

#include "kernels/registry.h"

namespace millrace::gpu {

/// The registry with every GPU kernel of this build.
std::unique_ptr<const kernels::KernelRegistry> standard_kernels();

/// Adds every GPU kernel of this build. CMake generates the definition (cmake/registrations.cmake):
/// it calls the function `void add_<source>(KernelRegistry&)` of each source
/// kernels/gpu/ops/<source>.cc.
void register_all(kernels::KernelRegistry& registry);

}  // namespace millrace::gpu
