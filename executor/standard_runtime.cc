#include "executor/standard_runtime.h"

#include <utility>

#include "executor/parallel/exchange_kernels.h"
#include "kernels/register_all.h"

namespace millrace::executor {

std::unique_ptr<const kernels::KernelRegistry> executor_kernels() {
  auto kernels = kernels::standard_kernels();
  add_exchange_kernels(*kernels);
  return kernels;
}

std::shared_ptr<Runtime> make_runtime(std::string files_root, std::shared_ptr<Rings> rings) {
  auto runtime = std::make_shared<Runtime>();
  runtime->ops = ops::standard_registry();
  runtime->kernels = executor_kernels();
  add_standard_controls(runtime->controls);
  runtime->files_root = std::move(files_root);
  runtime->rings = std::move(rings);
  return runtime;
}

std::shared_ptr<const Runtime> standard_runtime(std::string files_root,
                                                std::shared_ptr<Rings> rings) {
  return make_runtime(std::move(files_root), std::move(rings));
}

}  // namespace millrace::executor
