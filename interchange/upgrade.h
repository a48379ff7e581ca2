#pragma once

#include "framework/base/status.h"
#include "framework/program.h"
#include "ops/registry.h"

namespace millrace::interchange {

/// Rewrites a program of an older release into the form of release 2.6 by the pass upgrade-program,
/// as all conversions expect it, and checks the result. Errors: those of the pass, kInvalidProgram.
Status upgrade_and_check(Program& program, const ops::OpRegistry& registry);

}  // namespace millrace::interchange
