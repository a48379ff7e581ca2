#pragma once

#include <memory>

#include "executor/runtime.h"
#include "tools/common/signal_watch.h"
#include "tools/run/options.h"

namespace millrace::tools {

/// Runs one program for --steps steps and writes the requested results. A signal ends the run after
/// the current step: with --save-every a checkpoint of that step is saved, nothing else is written,
/// and the exit code is 130 or 143. Ranks that train together stop and save together.
StatusOr<int> run_once(Tool& tool, const RunOptions& options,
                       const std::shared_ptr<const executor::Runtime>& runtime,
                       const SignalWatch& watch);

/// Runs every line of --batch and writes one line per case to stdout. A case that fails does not
/// end the others; a signal ends the command after the current case. Errors: a list that cannot be
/// read.
StatusOr<int> run_batch(Tool& tool, const RunOptions& options,
                        const std::shared_ptr<const executor::Runtime>& runtime,
                        const SignalWatch& watch);

/// Times --benchmark steps after --warmup ones and prints one JSON line (../shared/design/cli.md).
/// A signal ends it after the current step, and nothing is printed.
StatusOr<int> run_benchmark(Tool& tool, const RunOptions& options,
                            const std::shared_ptr<const executor::Runtime>& runtime,
                            const SignalWatch& watch);

}  // namespace millrace::tools
