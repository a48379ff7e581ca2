#include "transpiler/distribute/distribution_passes.h"

namespace millrace::transpiler {

StatusOr<PipelineReport> run_distribution(llvm::StringRef pipeline, Program& main,
                                          PassContext& context, const PassManagerOptions& options) {
  PassRegistry passes;
  add_distribute_job_passes(passes);
  MILLRACE_ASSIGN_OR_RETURN(const PassManager manager, PassManager::create(passes, pipeline));
  return manager.run(main, context, options);
}

PassManagerOptions fast_options() {
  PassManagerOptions options;
  options.check_changes = false;
  return options;
}

}  // namespace millrace::transpiler
