#include "kernels/cpu/elementwise/elementwise.h"
#include "kernels/register_all.h"

namespace millrace::kernels {

void add_elementwise_kernels(KernelRegistry& registry) {
  add_arithmetic(registry);
  add_chain(registry);
  add_extremes(registry);
  add_powers(registry);
  add_comparisons(registry);
  add_bit_ops(registry);
  add_all_equal(registry);
}

}  // namespace millrace::kernels
