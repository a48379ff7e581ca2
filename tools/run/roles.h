#pragma once

#include "tools/ps/trainer.h"
#include "tools/run/options.h"

namespace millrace::tools {

/// Runs one trainer, or one server, of a transpiled job; what --role says.
StatusOr<int> run_role(Tool& tool, const RunOptions& options);

/// What the options keep of a job at its end, but for the vars that are gathered.
Trainer::Ending ending_of(const Tool& tool, const RunOptions& options);

}  // namespace millrace::tools
