#include "kernels/cpu/quant/quant.h"
#include "kernels/register_all.h"

namespace millrace::kernels {

void add_quant_kernels(KernelRegistry& registry) {
  add_dequantize(registry);
  add_dictionary(registry);
  add_fake_quantize(registry);
  add_linear_quantize(registry);
}

}  // namespace millrace::kernels
