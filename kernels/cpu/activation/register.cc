#include "kernels/cpu/activation/activation.h"
#include "kernels/register_all.h"

namespace millrace::kernels {

void add_activation_kernels(KernelRegistry& registry) {
  add_rectifiers(registry);
  add_smooth_activations(registry);
  add_functions(registry);
  add_trigonometry(registry);
  add_value_tests(registry);
  add_prelu(registry);
  add_softmax(registry);
}

}  // namespace millrace::kernels
