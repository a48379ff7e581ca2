#pragma once

#include "kernels/registry.h"

namespace millrace::kernels {

// Kernels of ops/loss, one function per file.
void add_cross_entropy_kernels(KernelRegistry& registry);
void add_distribution_loss_kernels(KernelRegistry& registry);
void add_elementwise_loss_kernels(KernelRegistry& registry);
void add_nll_loss_kernels(KernelRegistry& registry);
void add_rank_loss_kernels(KernelRegistry& registry);
void add_row_loss_kernels(KernelRegistry& registry);
void add_sigmoid_cross_entropy_kernels(KernelRegistry& registry);
void add_sigmoid_focal_loss_kernels(KernelRegistry& registry);
void add_softmax_with_cross_entropy_kernels(KernelRegistry& registry);

}  // namespace millrace::kernels
