#include "ops/register_all.h"
#include "ops/rnn/defs.h"

namespace millrace::ops {

void register_rnn(OpRegistry& registry) {
  add_lod_rnn_ops(registry);
  add_dense_rnn_ops(registry);
  add_fused_rnn_ops(registry);
}

}  // namespace millrace::ops
