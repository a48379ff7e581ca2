#pragma once

#include "kernels/kernel.h"
#include "kernels/registry.h"

namespace millrace::kernels {

// Kernels of ops/math, one function per file.

/// cast.
/// multi_head_attention with its gradient, multihead_matmul.
void add_attention(KernelRegistry& registry);
void add_cast(KernelRegistry& registry);
/// clip with its gradient.
void add_clip(KernelRegistry& registry);
/// cos_sim with its gradient.
void add_cos_sim(KernelRegistry& registry);
/// dist with its gradient.
void add_dist(KernelRegistry& registry);
/// fc: a product with its bias and activation.
void add_fc(KernelRegistry& registry);
/// matmul, matmul_v2, bmm with their gradients.
void add_matmul(KernelRegistry& registry);
/// matmul with head_number above 1: each head multiplies its range of the columns of X.
StatusOr<Kernel> matmul_heads(const KernelSetup& op);
StatusOr<Kernel> matmul_heads_grad(const KernelSetup& op);
/// mul, mv, addmm with their gradients.
void add_mul(KernelRegistry& registry);
/// pow with its gradient.
void add_pow(KernelRegistry& registry);
void add_scale(KernelRegistry& registry);
/// sum of dense tensors, selected rows and tensor arrays.
void add_sum(KernelRegistry& registry);
/// cross, dot, kron with their gradients.
void add_vector_products(KernelRegistry& registry);
/// inverse, cholesky with their gradients.
void add_linear_algebra(KernelRegistry& registry);

}  // namespace millrace::kernels
