#pragma once

#include "transpiler/pass_registry.h"

namespace millrace::transpiler {

/// Adds the pass "distribute": replaces a training program by the program of one role of a cluster.
/// Its options are the fields of the configuration and of transpile(), with dashes.
void register_distribute(PassRegistry& registry);

}  // namespace millrace::transpiler
