#pragma once

#include "transpiler/pass_registry.h"

namespace millrace::transpiler {

/// Adds all passes: the general ones of transpiler/passes/, the optimizations of
/// transpiler/fusion/, and the distribution passes.
void register_all_passes(PassRegistry& registry);

}  // namespace millrace::transpiler
