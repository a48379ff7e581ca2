#pragma once

#include "framework/tensor/tensor.h"
#include "kernels/device.h"

namespace millrace::kernels::optimizer {

/// Sum of the squares of all elements, added up block by block, so that it does not depend on the
/// number of threads. For floating-point types; 0 for other element types.
/// Computed in double; for lars_momentum and dpsgd.
double squared_norm(const Tensor& tensor, CpuDevice& device);

}  // namespace millrace::kernels::optimizer
