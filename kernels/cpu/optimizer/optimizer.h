#pragma once

#include "kernels/registry.h"

namespace millrace::kernels {

// Kernels of ops/optimizer, one function per file.
void add_adam_kernels(KernelRegistry& registry);
void add_adaptive_kernels(KernelRegistry& registry);
void add_dpsgd_kernel(KernelRegistry& registry);
void add_lamb_kernel(KernelRegistry& registry);
void add_lars_kernel(KernelRegistry& registry);
void add_loss_scaling_kernels(KernelRegistry& registry);
void add_plain_kernels(KernelRegistry& registry);
void add_proximal_kernels(KernelRegistry& registry);

}  // namespace millrace::kernels
