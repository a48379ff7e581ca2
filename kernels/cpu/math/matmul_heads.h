#pragma once

#include "kernels/kernel.h"

namespace millrace::kernels {

/// Makers of the kernels of matmul with head_number above 1, and of its gradient op: each head
/// multiplies its range of the columns of X.
StatusOr<Kernel> matmul_heads(const KernelSetup& op);
StatusOr<Kernel> matmul_heads_grad(const KernelSetup& op);

}  // namespace millrace::kernels
