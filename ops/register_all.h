#pragma once

#include "ops/registry.h"

namespace millrace::ops {

/// Registers every op of this build. CMake generates the definition (cmake/registrations.cmake): it
/// calls the function `void add_<family>_<source>(OpRegistry&)` of each source
/// ops/<family>/<source>.cc without a header of that name.
void register_all(OpRegistry& registry);

}  // namespace millrace::ops
