#pragma once

#include "tools/run/options.h"

namespace millrace::tools {

/// Runs one trainer, or one server, of a transpiled job; what --role says.
StatusOr<int> run_role(Tool& tool, const RunOptions& options);

}  // namespace millrace::tools
