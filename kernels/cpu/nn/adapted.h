#pragma once

#include "kernels/kernel.h"

namespace millrace::kernels {

/// A kernel without loops for 16-bit floats, called with its f16 tensors widened to f32: what it
/// gives is rounded to f16. Calls without an f16 tensor pass unchanged. Errors: those of the
/// kernel; kResource.
Kernel computed_in_float(const KernelSetup& op, Kernel kernel);
/// A maker of such kernels.
template <KernelMaker kMaker>
StatusOr<Kernel> in_float(const KernelSetup& op) {
  MILLRACE_ASSIGN_OR_RETURN(Kernel kernel, kMaker(op));
  return computed_in_float(op, std::move(kernel));
}

/// The kernel of an op that sees max(Input, 0) in place of Input; for a gradient op, what it gives
/// for Input is 0 where Input is not above 0. Input must be f32 or f64.
Kernel behind_relu(const KernelSetup& op, Kernel kernel);

}  // namespace millrace::kernels
