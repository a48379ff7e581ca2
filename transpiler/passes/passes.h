#pragma once

#include "transpiler/pass_registry.h"

/// The general passes, one a file of the same name with underscores. `transpile-program --help` and
/// docs/passes.md list them with their options.
namespace millrace::transpiler {

void register_remove_dead_ops(PassRegistry& passes);

}  // namespace millrace::transpiler
