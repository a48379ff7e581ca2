#include "executor/compiled_ops/control.h"

#include <cstdlib>
#include <utility>

#include "framework/base/registered_twice.h"

namespace millrace::executor {

void ControlRegistry::add(llvm::StringRef type, ControlMaker maker) {
  if (!makers_.try_emplace(type, std::move(maker)).second)
    abort_registered_twice("the control of op", type);
}

void ControlRegistry::run_before(llvm::StringRef type, std::function<Status()> first) {
  const auto found = makers_.find(type);
  if (found == makers_.end()) std::abort();
  ControlMaker& maker = found->getValue();
  maker = [maker = std::move(maker), first = std::move(first)](
              const kernels::KernelSetup& setup, BlockRunner& runner) -> StatusOr<Control> {
    MILLRACE_ASSIGN_OR_RETURN(Control control, maker(setup, runner));
    return Control([control = std::move(control), first](ControlContext& ctx) -> Status {
      MILLRACE_RETURN_IF_ERROR(first());
      return control(ctx);
    });
  };
}

void add_standard_controls(ControlRegistry& registry) {
  add_collective(registry);
  add_conditional_block(registry);
  add_feed_fetch(registry);
  add_files(registry);
  add_recurrent(registry);
  add_ring_setup(registry);
  add_while(registry);
}

}  // namespace millrace::executor
