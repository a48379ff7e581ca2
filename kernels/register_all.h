#pragma once

#include <memory>

#include "kernels/registry.h"

namespace millrace::kernels {

/// The registry with every CPU kernel of this build.
std::unique_ptr<KernelRegistry> standard_kernels();

// One function per family; each adds the kernels of its folder.
void add_activation_kernels(KernelRegistry& registry);
void add_collective_kernels(KernelRegistry& registry);
void add_control_flow_kernels(KernelRegistry& registry);
void add_detection_kernels(KernelRegistry& registry);
void add_distributed_kernels(KernelRegistry& registry);
void add_elementwise_kernels(KernelRegistry& registry);
void add_embedding_kernels(KernelRegistry& registry);
void add_feature_kernels(KernelRegistry& registry);
void add_loss_kernels(KernelRegistry& registry);
void add_math_kernels(KernelRegistry& registry);
void add_metric_kernels(KernelRegistry& registry);
void add_nn_kernels(KernelRegistry& registry);
void add_optimizer_kernels(KernelRegistry& registry);
void add_quant_kernels(KernelRegistry& registry);
void add_random_kernels(KernelRegistry& registry);
void add_reduce_kernels(KernelRegistry& registry);
void add_rnn_kernels(KernelRegistry& registry);
void add_sequence_kernels(KernelRegistry& registry);
void add_tensor_kernels(KernelRegistry& registry);
void add_vision_kernels(KernelRegistry& registry);

}  // namespace millrace::kernels
