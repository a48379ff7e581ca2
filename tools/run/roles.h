#pragma once

#include "jobs/ps/trainer.h"
#include "tools/run/options.h"

namespace millrace::tools {

/// Runs one trainer or one server of a transpiled job, as --role says.
StatusOr<int> run_role(Tool& tool, const RunOptions& options);

/// What the options save of a job at its end, except for the gathered vars.
jobs::Trainer::Ending ending_of(const Tool& tool, const RunOptions& options);

}  // namespace millrace::tools
