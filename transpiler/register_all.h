#pragma once

#include "transpiler/pass_registry.h"

namespace millrace::transpiler {

/// Adds all passes of this build. CMake generates the definition (cmake/registrations.cmake): it
/// calls the function `void add_<folder>_<source>(PassRegistry&)` of each source of
/// transpiler/passes, fusion and parallel without a header of that name, and of those that add the
/// passes of distribution and upgrade.
void register_all(PassRegistry& registry);

}  // namespace millrace::transpiler
