#pragma once

#include "framework/base/status.h"
#include "kernels/cpu/needed.h"
#include "kernels/kernel.h"

namespace millrace::kernels::rnn {

/// Resizes the gradients that gru and lstm have in common like their inputs: dinput, dweight, and
/// dbias and dh0 where the op has Bias and H0. Gradients that the program does not request become
/// null. Errors: kResource.
/// \param slots, inputs, gradients  structs of one of the ops, with members of those names
template <typename Slots, typename Inputs, typename Gradients>
Status size_common_gradients(const KernelContext& ctx, const Slots& slots, const Inputs& inputs,
                             Gradients& gradients) {
  MILLRACE_ASSIGN_OR_RETURN(gradients.dinput, result_like(ctx, slots.dinput, *inputs.input));
  MILLRACE_ASSIGN_OR_RETURN(gradients.dweight, result_like(ctx, slots.dweight, *inputs.weight));
  if (inputs.bias != nullptr) {
    MILLRACE_ASSIGN_OR_RETURN(gradients.dbias, result_like(ctx, slots.dbias, *inputs.bias));
  }
  if (inputs.h0 != nullptr) {
    MILLRACE_ASSIGN_OR_RETURN(gradients.dh0, result_like(ctx, slots.dh0, *inputs.h0));
  }
  return Ok();
}

}  // namespace millrace::kernels::rnn
