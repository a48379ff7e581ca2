#include "ops/math/defs.h"
#include "ops/register_all.h"

namespace millrace::ops {

void register_math(OpRegistry& registry) {
  add_small_product_ops(registry);
  registry.add(cast());
  registry.add(clip());
  registry.add(cos_sim());
  registry.add(cross());
  registry.add(dist());
  registry.add(kron());
  registry.add(matmul());
  registry.add(matmul_v2());
  registry.add(mul());
  registry.add(summed_mul_grad());
  registry.add(pow());
  registry.add(scale());
  registry.add(sum());
  add_linear_algebra_ops(registry);
}

}  // namespace millrace::ops
