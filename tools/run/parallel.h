#pragma once

#include <memory>
#include <string>
#include <vector>

#include "executor/parallel/parallel_executor.h"
#include "tools/run/session.h"

namespace millrace::tools {

/// Number of CPU devices that --devices asks for: N for cpu:N; for cpu, CPU_NUM of the environment,
/// else 1. Errors: kUsage; kUnimplemented for gpu.
StatusOr<int> device_count(const RunOptions& options);

/// True if the options need a ParallelExecutor.
bool wants_parallel(const RunOptions& options, int devices);

/// Options of a ParallelExecutor from the flags. The loss is that of --loss, otherwise the var
/// whose gradient the program seeds. Errors: kUsage for bad flags.
StatusOr<executor::ParallelOptions> parallel_options(const Tool& tool, const RunOptions& options,
                                                     int devices, const Program& program);

/// Creates session.parallel. The loss is chosen as in parallel_options(). Errors: kUsage for bad
/// flags; those of ParallelExecutor::create().
Status open_parallel(const Tool& tool, const RunOptions& options, int devices,
                     const std::shared_ptr<const executor::Runtime>& runtime, Session& session);

/// Runs one step. Results are by name, or by "devD/<name>" if they are not merged. With --feed-mode
/// list, members of feeds are "devD/<name>". Errors: those of the executor; kInvalidData for other
/// names.
Status run_parallel(Session& session, const RunOptions& options, const executor::NamedValues& feeds,
                    const std::vector<std::string>& fetches, executor::NamedValues& results);

/// Persistable vars of every device as "devD/<name>".
StatusOr<executor::NamedValues> persistables_of_devices(const Session& session);

/// Runs --share-vars-program once with the variables of the session and writes
/// --share-vars-output.
Status run_with_shared_vars(Tool& tool, const RunOptions& options,
                            const std::shared_ptr<const executor::Runtime>& runtime,
                            Session& session);

}  // namespace millrace::tools
