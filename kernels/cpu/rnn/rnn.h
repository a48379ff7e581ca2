#pragma once

#include "kernels/registry.h"

namespace millrace::kernels {

// Kernels of ops/rnn, one function per file.
void add_attention_lstm_kernel(KernelRegistry& registry);
void add_dense_rnn_kernels(KernelRegistry& registry);
void add_fused_rnn_kernels(KernelRegistry& registry);
void add_gru_kernels(KernelRegistry& registry);
void add_lstm_kernels(KernelRegistry& registry);
void add_lstm_unit_kernels(KernelRegistry& registry);

}  // namespace millrace::kernels
