#pragma once

#include <string>
#include <vector>

#include "framework/base/status.h"
#include "framework/program.h"
#include "ops/registry.h"
#include "transpiler/pass_manager.h"
#include "transpiler/pipeline.h"

namespace millrace::executor {

/// Which rewrites to apply.
struct OptimizeOptions {
  bool fuse = true;              ///< rewrites that change results at most by rounding
  bool for_gpu = false;          ///< of these only those whose ops have GPU kernels
  bool bf16_products = false;    ///< also round factors of matrix products to bfloat16
  bool split_gradients = false;  ///< gradients that may run in parallel become separate ops
  /// With `fuse`: small updates are merged into one op. Not if later passes look for updates, such
  /// as those that make the programs of several devices.
  bool merge_updates = false;
  /// Inference: the first run frees parameters that are folded into others.
  bool release_folded = false;
  bool verify_passes = false;  ///< see pass_options()
};

/// How the passes run that rewrite a program before it is compiled.
///
/// \param registry  must outlive the result
/// \param verify    a change that a pass does not report is found, and if the program verifies as
/// it is, so must the result of each pass that changed it; an error is kInternal. False: no checks,
/// because the tests check the passes (docs/decisions, decision 25).
transpiler::PassManagerOptions pass_options(const Program& program, const ops::OpRegistry& registry,
                                            bool verify);

/// The passes that make a program faster before it runs, in order: one list for inference, where no
/// op writes a persistable var, and one for everything else.
///
/// \param keep  names of vars whose value is needed after a run; passed to every pass of the list
transpiler::Pipeline optimization_pipeline(const Program& program,
                                           const std::vector<std::string>& keep,
                                           const OptimizeOptions& options = {});

/// Runs that pipeline. Afterwards the following holds for the vars of the program:
/// - those of `keep`, persistable ones, and those that sub-blocks or attributes mention still
/// exist;
/// - each var that still exists has, after a run, the value it had without the rewrite except for
/// rounding.
///
/// \returns whether the program changed
/// Errors: those of the passes, which are bugs (kInternal) if the program verifies.
StatusOr<bool> optimize(Program& program, const ops::OpRegistry& registry,
                        const std::vector<std::string>& keep, const OptimizeOptions& options = {});

}  // namespace millrace::executor
