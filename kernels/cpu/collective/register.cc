#include "kernels/cpu/collective/collective.h"
#include "kernels/register_all.h"

namespace millrace::kernels {

void add_collective_kernels(KernelRegistry& registry) {
  add_coalesce(registry);
}

}  // namespace millrace::kernels
