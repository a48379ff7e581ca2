#pragma once

#include <string>
#include <vector>

#include "framework/base/status.h"
#include "framework/program.h"
#include "ops/registry.h"
#include "transpiler/pipeline.h"

namespace millrace::executor {

/// Which rewrites are wanted.
struct OptimizeOptions {
  bool fuse = true;              ///< those that leave results as they are but for rounding
  bool bf16_products = false;    ///< and factors of matrix products rounded to bfloat16
  bool split_gradients = false;  ///< gradients that may run side by side become ops of their own
  /// With `fuse`: small updates become one op. Not where other passes look for updates afterwards,
  /// as those that make the programs of several devices do.
  bool merge_updates = false;
  /// Inference: parameters that are folded into others lose their elements in the first run.
  bool release_folded = false;
};

/// The passes that make a program faster before it runs, in order: one list for inference, where no
/// op writes a persistable var, and one for everything else.
///
/// \param keep  names of vars whose value is wanted after a run; every pass of the list gets them
transpiler::Pipeline optimization_pipeline(const Program& program,
                                           const std::vector<std::string>& keep,
                                           const OptimizeOptions& options = {});

/// Runs that pipeline. What holds afterwards for the vars of the program:
/// - those of `keep`, persistable ones, and those that sub-blocks or attributes mention are there;
/// - each var that is there has, after a run, the value it had without the rewrite but for
/// rounding.
///
/// \returns whether the program changed
/// Errors: those of the passes, which are bugs (kInternal) in a program that verifies.
StatusOr<bool> optimize(Program& program, const ops::OpRegistry& registry,
                        const std::vector<std::string>& keep, const OptimizeOptions& options = {});

}  // namespace millrace::executor
