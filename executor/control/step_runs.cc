#include "executor/control/step_runs.h"

#include <fmt/format.h>

namespace millrace::executor {

StepRuns& StepRuns::of(Scope& scope, const std::shared_ptr<void>& owner) {
  std::shared_ptr<void>& place = scope.attachment(owner.get());
  auto* runs = static_cast<StepRuns*>(place.get());
  // another op may have had the same address before
  if (runs == nullptr || runs->owner_.lock() != owner) {
    auto made = std::make_shared<StepRuns>();
    made->owner_ = owner;
    runs = made.get();
    place = std::move(made);
  }
  return *runs;
}

StepRuns::Step& StepRuns::begin(size_t i, const BlockRunner& runner, Scope& outer,
                                const std::shared_ptr<Scope>& beside,
                                llvm::ArrayRef<std::string> linked) {
  if (i >= steps_.size()) steps_.resize(i + 1);
  Step& step = steps_[i];
  if (step.scope != nullptr && step.scope->beside() == beside) {
    step.binding.forget();
    return step;
  }
  step.scope = std::make_shared<Scope>(&outer, beside);
  for (const std::string& name : linked) step.scope->local(name);
  step.binding = runner.binding(*step.scope);
  return step;
}

StatusOr<BlockRunner*> sub_block_of(const kernels::KernelSetup& setup, BlockRunner& runner) {
  const AttrValue* const attr = setup.op().find_attr("sub_block");
  if (attr == nullptr || attr->kind() != AttrKind::kBlock)
    return setup.error("attribute 'sub_block' must name a block");
  return runner.sub_block(static_cast<int32_t>(attr->integer()));
}

}  // namespace millrace::executor
