#include "transpiler/distribute/steps.h"

#include <array>
#include <utility>

namespace millrace::transpiler {
namespace {

constexpr size_t kStepCount = 13;

// One step as a pass. The programs' edit counters tell whether it changed anything.
template <size_t Index>
class StepPass final : public Pass {
 public:
  [[nodiscard]] llvm::StringRef name() const override { return pserver_mode_steps()[Index].name; }

  StatusOr<bool> run(Program& program, PassContext& context) override {
    MILLRACE_ASSIGN_OR_RETURN(DistributionJob* const job, job_of(context, name()));
    const auto edits = [&] {
      return program.edits() + (context.startup == nullptr ? 0 : context.startup->edits());
    };
    const uint64_t before = edits();
    MILLRACE_RETURN_IF_ERROR(pserver_mode_steps()[Index].run(program, context, *job));
    return edits() != before;
  }
};

template <size_t... Indices>
void register_steps(PassRegistry& registry, std::index_sequence<Indices...> /*indices*/) {
  (registry.add(PassInfo(pserver_mode_steps()[Indices].name, pserver_mode_steps()[Indices].summary)
                    .makes<StepPass<Indices>>()),
   ...);
}

}  // namespace

llvm::ArrayRef<NamedStep> pserver_mode_steps() {
  static constexpr std::array<NamedStep, kStepCount> kSteps = {{
      {"collect-optimizers",
       "find optimize ops and (param, grad) pairs; move clipping to the trainer",
       collect_optimizers},
      {"find-tables", "find sparse, prefetched and distributed lookup tables", find_tables},
      {"slice-vars", "split params and gradients into slices of whole rows", slice_vars},
      {"place-slices", "assign the slices to servers", place_slices},
      {"insert-sends", "split and send each gradient after its last writer", insert_sends},
      {"share-step-counter", "sum the step counters of all trainers in asynchronous schedules",
       share_step_counter},
      {"append-send-barrier", "wait until all gradients have arrived", append_send_barrier},
      {"append-recvs", "receive the updated params", append_recvs},
      {"replace-prefetched-lookups", "look up remote_prefetch tables by row",
       replace_prefetched_lookups},
      {"join-params", "wait for all params and join their slices", join_params},
      {"extend-trainer-startup", "fetch the initial params from the servers",
       extend_trainer_startup},
      {"replace-distributed-lookups", "look up a distributed table through its servers",
       replace_distributed_lookups},
      {"list-optimizer-state", "list the optimizer state of every server", list_optimizer_state},
  }};
  return kSteps;
}

Pipeline pserver_mode_pipeline() {
  Pipeline pipeline;
  for (const NamedStep& step : pserver_mode_steps())
    pipeline.steps.push_back(PipelineStep{step.name.str(), {}});
  return pipeline;
}

void register_distribution_steps(PassRegistry& registry) {
  register_steps(registry, std::make_index_sequence<kStepCount>());
}

}  // namespace millrace::transpiler
