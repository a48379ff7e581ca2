#include "kernels/cpu/distributed/distributed.h"
#include "kernels/register_all.h"

namespace millrace::kernels {

void add_distributed_kernels(KernelRegistry& registry) {
  add_dgc(registry);
  add_ids(registry);
  add_slices(registry);
  add_sparse_tables(registry);
}

}  // namespace millrace::kernels
