#include "kernels/cpu/math/math.h"
#include "kernels/register_all.h"

namespace millrace::kernels {

void add_math_kernels(KernelRegistry& registry) {
  add_attention(registry);
  add_cast(registry);
  add_clip(registry);
  add_cos_sim(registry);
  add_dist(registry);
  add_fc(registry);
  add_matmul(registry);
  add_mul(registry);
  add_pow(registry);
  add_scale(registry);
  add_sum(registry);
  add_vector_products(registry);
  add_linear_algebra(registry);
}

}  // namespace millrace::kernels
