#include "executor/runtime.h"

#include "kernels/register_all.h"

namespace millrace::executor {

std::shared_ptr<const Runtime> standard_runtime() {
  auto runtime = std::make_shared<Runtime>();
  runtime->ops = ops::standard_registry();
  runtime->kernels = kernels::standard_kernels();
  add_standard_controls(runtime->controls);
  return runtime;
}

}  // namespace millrace::executor
