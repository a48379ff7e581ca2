#include "kernels/register_all.h"

namespace millrace::kernels {

std::unique_ptr<KernelRegistry> standard_kernels() {
  auto registry = std::make_unique<KernelRegistry>();
  register_all(*registry);
  return registry;
}

}  // namespace millrace::kernels
