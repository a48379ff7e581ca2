#include "kernels/cpu/sequence/sequence.h"
#include "kernels/register_all.h"

namespace millrace::kernels {

void add_sequence_kernels(KernelRegistry& registry) {
  add_beam_search_kernels(registry);
  add_chunk_eval_kernel(registry);
  add_ctc_align_kernel(registry);
  add_edit_distance_kernel(registry);
  add_fused_sequence_kernels(registry);
  add_linear_chain_crf_kernels(registry);
  add_sequence_conv_kernels(registry);
  add_sequence_expand_kernels(registry);
  add_sequence_move_kernels(registry);
  add_sequence_pad_kernels(registry);
  add_sequence_pool_kernels(registry);
  add_sequence_softmax_kernels(registry);
  add_sequence_token_kernels(registry);
  add_sequence_topk_kernels(registry);
  add_warpctc_kernels(registry);
}

}  // namespace millrace::kernels
