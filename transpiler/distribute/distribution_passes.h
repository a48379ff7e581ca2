#pragma once

#include <llvm/ADT/StringRef.h>

#include "framework/base/status.h"
#include "framework/program.h"
#include "transpiler/pass_manager.h"

namespace millrace::transpiler {

/// Adds the passes of all modes of distribution. Those that use the facts of a job work only inside
/// 'distribute': the mode makes the facts and runs the pipeline.
void add_distribute_job_passes(PassRegistry& registry);

/// Runs the pipeline of a mode on the programs of a trainer.
///
/// \param pipeline  text with registered passes
/// \param context   has the startup program and the facts of the job
/// Errors: those of PassManager::run().
StatusOr<PipelineReport> run_distribution(llvm::StringRef pipeline, Program& main,
                                          PassContext& context, const PassManagerOptions& options);

/// How the passes of a mode run unless a caller says otherwise: without checks between the passes,
/// because the tools verify the result.
PassManagerOptions fast_options();

}  // namespace millrace::transpiler
