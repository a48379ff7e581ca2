#pragma once

#include <memory>

#include "executor/runtime.h"
#include "tools/common/signal_watch.h"
#include "tools/run/options.h"

namespace millrace::tools {

/// Runs one program for --steps steps and writes what was asked for. A signal ends it behind the
/// step that runs: with --save-every a checkpoint of that step is saved, nothing else is written,
/// and the exit code is 130 or 143. Ranks that train together end and save together.
StatusOr<int> run_once(Tool& tool, const RunOptions& options,
                       const std::shared_ptr<const executor::Runtime>& runtime,
                       const SignalWatch& watch);

/// Runs every line of --batch; one answer line each on stdout. A case that fails does not end the
/// others; a signal ends them behind the case that runs. Errors: a list that cannot be read.
StatusOr<int> run_batch(Tool& tool, const RunOptions& options,
                        const std::shared_ptr<const executor::Runtime>& runtime,
                        const SignalWatch& watch);

/// Times --benchmark steps after --warmup ones and prints one JSON line (../shared/design/cli.md).
/// A signal ends it behind the step that runs, and nothing is printed.
StatusOr<int> run_benchmark(Tool& tool, const RunOptions& options,
                            const std::shared_ptr<const executor::Runtime>& runtime,
                            const SignalWatch& watch);

}  // namespace millrace::tools
