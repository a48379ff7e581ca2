#pragma once

#include <memory>
#include <string>
#include <vector>

#include "framework/base/status.h"
#include "ops/registry.h"
#include "tools/common/tool.h"
#include "tools/transpile/fields.h"
#include "transpiler/pass_manager.h"

namespace millrace::tools {

/// How a pipeline runs under --verify, --print-after, --print-after-all, --dump-dir and --timing.
/// One run at a time.
class WatchedPasses {
 public:
  /// \param registry  must outlive this
  WatchedPasses(const TranspileOptions& options, const ops::OpRegistry& registry);

  /// Whether an option asks for more than the result of the pipeline.
  static bool wanted(const TranspileOptions& options);

  /// Options for PassManager::run(); valid as long as this.
  [[nodiscard]] const transpiler::PassManagerOptions& options() const { return run_options_; }
  /// The times of the passes of the last run, with --timing; else empty.
  [[nodiscard]] std::string times() const;

 private:
  class Times;
  transpiler::PassManagerOptions run_options_;
  std::vector<std::unique_ptr<transpiler::PassInstrumentation>> watchers_;
  Times* times_ = nullptr;  ///< in watchers_
};

/// transpile-program --passes: reads one program, runs the pipeline, writes the result to -o.
/// With an empty pipeline the program is only converted between forms.
/// Errors: those of reading and writing; those of PassManager.
StatusOr<int> run_passes(Tool& tool, const TranspileOptions& options);

}  // namespace millrace::tools
