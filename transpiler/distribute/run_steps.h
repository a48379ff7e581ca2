#pragma once

#include <memory>
#include <vector>

#include "transpiler/pass.h"

namespace millrace::transpiler {

/// Passes in the order in which they run.
using Steps = std::vector<std::unique_ptr<Pass>>;

/// Runs the passes on the program in order. Errors: that of the first failing pass, with a note
/// that names the pass.
Status run_steps(const Steps& steps, Program& program, PassContext& context);

}  // namespace millrace::transpiler
