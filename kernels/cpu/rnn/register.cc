#include "kernels/cpu/rnn/rnn.h"
#include "kernels/register_all.h"

namespace millrace::kernels {

void add_rnn_kernels(KernelRegistry& registry) {
  add_attention_lstm_kernel(registry);
  add_dense_rnn_kernels(registry);
  add_fused_rnn_kernels(registry);
  add_gru_kernels(registry);
  add_lstm_kernels(registry);
  add_lstm_unit_kernels(registry);
}

}  // namespace millrace::kernels
