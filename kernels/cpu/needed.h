#pragma once

#include "kernels/kernel.h"

namespace millrace::kernels {

/// An input tensor that the kernel requires. Errors: the op lacks the slot, or the var holds no
/// dense tensor; the message names the slot. Gradient ops need this check because all their slots
/// are optional.
inline StatusOr<const Tensor*> needed(const KernelContext& ctx, ArgIndex arg, const char* slot) {
  const Tensor* const tensor = ctx.find_in(arg);
  if (tensor != nullptr && tensor->initialized()) return tensor;
  return ctx.error("input {} holds no tensor", slot);
}

/// Resizes an output to the element type and dims of a tensor, whatever shape inference set. Null
/// if the op lacks the output. Errors: kResource.
inline StatusOr<Tensor*> result_like(const KernelContext& ctx, ArgIndex arg, const Tensor& like) {
  Tensor* const out = ctx.find_out(arg);
  if (out == nullptr) return out;
  if (!out->initialized() || out->dtype() != like.dtype() || out->dims() != like.dims())
    MILLRACE_RETURN_IF_ERROR(out->resize(like.dtype(), like.dims()));
  return out;
}

}  // namespace millrace::kernels
