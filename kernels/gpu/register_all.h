#pragma once

#include <memory>

#include "kernels/registry.h"

namespace millrace::gpu {

/// The registry with every GPU kernel of this build.
std::unique_ptr<const kernels::KernelRegistry> standard_kernels();

// One function per file of kernels/gpu/ops.
void add_activation_kernels(kernels::KernelRegistry& registry);
void add_construct_kernels(kernels::KernelRegistry& registry);
void add_conv_kernels(kernels::KernelRegistry& registry);
void add_elementwise_kernels(kernels::KernelRegistry& registry);
void add_loss_kernels(kernels::KernelRegistry& registry);
void add_norm_kernels(kernels::KernelRegistry& registry);
void add_optimizer_kernels(kernels::KernelRegistry& registry);
void add_pool_kernels(kernels::KernelRegistry& registry);
void add_product_kernels(kernels::KernelRegistry& registry);
void add_reduce_kernels(kernels::KernelRegistry& registry);
void add_softmax_kernels(kernels::KernelRegistry& registry);

}  // namespace millrace::gpu
