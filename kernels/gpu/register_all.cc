#include "kernels/gpu/register_all.h"

namespace millrace::gpu {

std::unique_ptr<const kernels::KernelRegistry> standard_kernels() {
  auto registry = std::make_unique<kernels::KernelRegistry>();
  register_all(*registry);
  return registry;
}

}  // namespace millrace::gpu
