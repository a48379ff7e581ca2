#pragma once

#include <memory>
#include <vector>

#include "transpiler/pass.h"

namespace millrace::transpiler {

/// The passes of one driver, in order.
using Steps = std::vector<std::unique_ptr<Pass>>;

/// Runs the steps one after the other on the program. Errors: the first failing step's, with a note
/// that names the step.
Status run_steps(const Steps& steps, Program& program, PassContext& context);

}  // namespace millrace::transpiler
