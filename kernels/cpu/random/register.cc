#include "kernels/cpu/random/random.h"
#include "kernels/register_all.h"

namespace millrace::kernels {

void add_random_kernels(KernelRegistry& registry) {
  add_dropout(registry);
  add_fill(registry);
  add_integers(registry);
  add_normal(registry);
  add_number_sequences(registry);
  add_uniform(registry);
  add_samples(registry);
}

}  // namespace millrace::kernels
