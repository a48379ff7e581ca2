#pragma once

#include <memory>
#include <string>
#include <vector>

#include "executor/parallel/parallel_executor.h"
#include "jobs/run/session.h"
#include "tools/run/options.h"

namespace millrace::tools {

/// Number of devices that --devices asks for: N for cpu:N; for cpu, CPU_NUM of the environment,
/// else 1; that of the GPUs in gpu:N,M. Errors: kUsage.
StatusOr<int> device_count(const RunOptions& options);

/// True if the options need a ParallelExecutor.
bool wants_parallel(const RunOptions& options, int devices);

/// Options of a ParallelExecutor from the flags. The loss is that of --loss, otherwise the var
/// whose gradient the program seeds. Errors: kUsage for bad flags.
StatusOr<executor::ParallelOptions> parallel_options(const Tool& tool, const RunOptions& options,
                                                     int devices, const Program& program);

/// Runs --share-vars-program once with the variables of the session and writes
/// --share-vars-output.
Status run_with_shared_vars(Tool& tool, const RunOptions& options,
                            const std::shared_ptr<const executor::Runtime>& runtime,
                            jobs::Session& session);

}  // namespace millrace::tools
