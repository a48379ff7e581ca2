#pragma once

#include "kernels/kernel.h"

namespace millrace::kernels {

/// Wraps a kernel that has no loops for 16-bit floats: its inputs of f16 or bf16 are widened to
/// f32, and its results are rounded to that type. Calls without such a tensor are passed through
/// unchanged. Errors: those of the kernel; kExecution for both types in one call; kResource.
Kernel computed_in_float(const KernelSetup& op, Kernel kernel);
/// Wraps a maker in the same way.
template <KernelMaker kMaker>
StatusOr<Kernel> in_float(const KernelSetup& op) {
  MILLRACE_ASSIGN_OR_RETURN(Kernel kernel, kMaker(op));
  return computed_in_float(op, std::move(kernel));
}

/// Wraps the kernel of an op so that it sees max(Input, 0) in place of Input. For a gradient op,
/// the gradient of Input is then set to 0 where Input is not above 0. Input must be f32 or f64.
/// Errors of the wrapped kernel are passed on. Used where a program has fused a rectifier into the
/// op before it.
Kernel behind_relu(const KernelSetup& op, Kernel kernel);

}  // namespace millrace::kernels
