#include "executor/compiled_ops/control.h"

#include "framework/base/registered_twice.h"

namespace millrace::executor {

void ControlRegistry::add(llvm::StringRef type, ControlMaker maker) {
  if (!makers_.try_emplace(type, std::move(maker)).second)
    abort_registered_twice("the control of op", type);
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
