#pragma once

#include "tools/run/options.h"

namespace millrace::tools {

/// Trains a transpiled job with all its trainers and servers in this process.
StatusOr<int> run_cluster(Tool& tool, const RunOptions& options);

}  // namespace millrace::tools
