#pragma once

#include <memory>

#include "kernels/registry.h"

namespace millrace::kernels {

/// The registry with every CPU kernel of this build.
std::unique_ptr<KernelRegistry> standard_kernels();

/// Adds every CPU kernel of this build. CMake generates the definition (cmake/registrations.cmake):
/// it calls the function `void add_<family>_<source>(KernelRegistry&)` of each source
/// kernels/cpu/<family>/<source>.cc without a header of that name.
void register_all(KernelRegistry& registry);

}  // namespace millrace::kernels
