#pragma once

#include "transpiler/pass_registry.h"

namespace millrace::transpiler {

/// Adds the pass "distribute", which replaces a training program by the program of one role of a
/// cluster. Its options are the fields of DistributeTranspilerConfig and TranspileArguments, with
/// dashes instead of underscores.
void register_distribute(PassRegistry& registry);

}  // namespace millrace::transpiler
