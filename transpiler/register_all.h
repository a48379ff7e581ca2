#pragma once

#include "transpiler/pass_registry.h"

namespace millrace::transpiler {

/// Adds every pass of this build: the general ones of transpiler/passes/, those for speed of
/// transpiler/fusion/, and the distribution ones.
void register_all_passes(PassRegistry& registry);

}  // namespace millrace::transpiler
