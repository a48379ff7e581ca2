#include "kernels/cpu/math/math.h"
#include "kernels/register_all.h"

namespace millrace::kernels {

void add_math_kernels(KernelRegistry& registry) {
  add_scale(registry);
}

}  // namespace millrace::kernels
