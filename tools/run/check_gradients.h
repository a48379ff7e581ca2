#pragma once

#include <memory>

#include "executor/runtime.h"
#include "tools/common/tool.h"
#include "tools/run/options.h"

namespace millrace::tools {

/// Adds the options of --check-gradients.
void add_check_gradients_options(CLI::App& app, GradientCheckFlags& flags);

/// Refuses options that need --check-gradients if it is not given, and options that would have no
/// effect with it. Errors: kUsage naming the option.
Status check_gradients_usage(const Tool& tool);

/// run-program --check-gradients: compares the gradients of the first step with central differences
/// and writes a table, or with --json an object. Returns kAnswerIsNo if a gradient is wrong.
/// Errors: those of open_session() and executor::check_gradients(); kUsage for several devices.
StatusOr<int> run_check_gradients(Tool& tool, const RunOptions& options,
                                  const std::shared_ptr<const executor::Runtime>& runtime);

}  // namespace millrace::tools
