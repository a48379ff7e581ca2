#include "ops/register_all.h"
#include "ops/sequence/defs.h"

namespace millrace::ops {

void register_sequence(OpRegistry& registry) {
  add_sequence_shape_ops(registry);
  add_sequence_padding_ops(registry);
  add_sequence_compute_ops(registry);
  add_crf_ops(registry);
  add_ctc_ops(registry);
  add_beam_search_ops(registry);
  add_fused_sequence_ops(registry);
}

}  // namespace millrace::ops
