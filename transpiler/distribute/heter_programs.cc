#include "transpiler/distribute/heter_programs.h"

#include <utility>

#include "transpiler/distribute/distribution_passes.h"
#include "transpiler/register_all.h"

namespace millrace::transpiler {
namespace heter_programs {
namespace {

Status run_pass(PipelineStep step, const HeterWorkers& workers, Program& main, PassContext& context,
                const PassManagerOptions& options) {
  PassRegistry passes;
  register_all(passes);
  if (!workers.returned.empty()) step.options.push_back({"returned", workers.returned});
  MILLRACE_ASSIGN_OR_RETURN(const PassManager manager,
                            PassManager::create(passes, Pipeline{{std::move(step)}}));
  return manager.run(main, context, options).status();
}

}  // namespace
}  // namespace heter_programs

StatusOr<std::vector<RolePrograms>> make_heter_workers(Program& main, const HeterWorkers& workers,
                                                       int64_t trainers,
                                                       const ops::OpRegistry& registry,
                                                       const PassManagerOptions& options) {
  using heter_programs::run_pass;
  std::vector<RolePrograms> made;
  for (size_t i = 0; i < workers.endpoints.size(); ++i) {
    RolePrograms programs{main.clone(), Program::create()};
    PassContext context(registry);
    MILLRACE_RETURN_IF_ERROR(run_pass({"heter-worker",
                                       {{"endpoint", workers.endpoints[i]},
                                        {"trainers", std::to_string(trainers)},
                                        {"worker", std::to_string(i)}}},
                                      workers, *programs.main, context, fast_options()));
    made.push_back(std::move(programs));
  }
  PassContext context(registry);
  MILLRACE_RETURN_IF_ERROR(run_pass({"heter-trainer", {{"workers", workers.endpoints}}}, workers,
                                    main, context, options));
  return made;
}

void number_heter_calls(Program& trainer, int64_t number) {
  for (Op& op : trainer.root().ops()) {
    if (op.type() == "send_and_recv") op.set_int("trainer_id", static_cast<int32_t>(number));
  }
}

}  // namespace millrace::transpiler
