#include "kernels/cpu/reduce/reduce.h"
#include "kernels/register_all.h"

namespace millrace::kernels {

void add_reduce_kernels(KernelRegistry& registry) {
  add_clip_by_norm(registry);
  add_logsumexp(registry);
  add_norms(registry);
  add_reductions(registry);
  add_reduction_grads(registry);
  add_scans(registry);
  add_totals(registry);
  add_histogram(registry);
  add_segment_pool(registry);
}

}  // namespace millrace::kernels
