#pragma once

#include <memory>

#include "executor/runtime.h"
#include "tools/run/options.h"

namespace millrace::tools {

/// Runs one program for --steps steps and writes what was asked for.
StatusOr<int> run_once(Tool& tool, const RunOptions& options,
                       const std::shared_ptr<const executor::Runtime>& runtime);

/// Runs every line of --batch; one answer line each on stdout. A case that fails does not end the
/// others. Errors: a list that cannot be read.
StatusOr<int> run_batch(Tool& tool, const RunOptions& options,
                        const std::shared_ptr<const executor::Runtime>& runtime);

/// Times --benchmark steps after --warmup ones and prints one JSON line (../shared/design/cli.md).
StatusOr<int> run_benchmark(Tool& tool, const RunOptions& options,
                            const std::shared_ptr<const executor::Runtime>& runtime);

}  // namespace millrace::tools
