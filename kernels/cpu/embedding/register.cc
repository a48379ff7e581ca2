#include "kernels/cpu/embedding/embedding.h"
#include "kernels/register_all.h"

namespace millrace::kernels {

void add_embedding_kernels(KernelRegistry& registry) {
  add_hierarchical_sigmoid(registry);
  add_lookup(registry);
  add_nce(registry);
  add_pooled_lookup(registry);
  add_selected_rows(registry);
  add_sample_logits(registry);
}

}  // namespace millrace::kernels
