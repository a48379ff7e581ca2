#include "kernels/cpu/tensor/tensor.h"
#include "kernels/register_all.h"

namespace millrace::kernels {

void add_tensor_kernels(KernelRegistry& registry) {
  add_concat(registry);
  add_crop(registry);
  add_expand(registry);
  add_gather(registry);
  add_pad(registry);
  add_pad_spatial(registry);
  add_reshape(registry);
  add_scatter(registry);
  add_slice(registry);
  add_stack(registry);
  add_transpose(registry);
}

}  // namespace millrace::kernels
