#pragma once

#include <initializer_list>
#include <utility>

#include <fmt/format.h>

#include "framework/base/status.h"
#include "framework/tensor/tensor.h"
#include "kernels/gpu/context.h"
#include "kernels/gpu/launch.h"
#include "kernels/kernel.h"

/// Shared code of the GPU kernels of ops: finding the device, and rejecting calls that only the CPU
/// kernels support.
namespace millrace::gpu {

/// Names of kernels/kernel.h that every file of this folder uses.
using kernels::ArgIndex;
using kernels::ArgRange;
using kernels::Kernel;
using kernels::KernelContext;
using kernels::KernelRegistry;
using kernels::KernelSetup;

/// Rejects the call, which the CPU kernel then handles. Must be called before anything is written.
template <typename... Args>
Status refuse(fmt::format_string<Args...> format, Args&&... args) {
  return {StatusCode::kUnimplemented, fmt::format(format, std::forward<Args>(args)...)};
}

/// The device that is attached to the op's device.
/// One must be attached (kernels/gpu/context.h): these kernels are made for such devices only.
inline Device& device_of(const KernelSetup& op) {
  return context_of(op.device())->device();
}
/// The memory of that device.
inline Memory& memory_of(const KernelSetup& op) {
  return context_of(op.device())->memory();
}

/// Rejects the call unless all of these are dense floats; null ones are absent arguments.
inline Status all_floats(std::initializer_list<const Tensor*> tensors) {
  for (const Tensor* const tensor : tensors) {
    if (tensor != nullptr && tensor->dtype() != DType::kFloat32)
      return refuse("the GPU kernel is for f32, found {}", describe(*tensor));
  }
  return Ok();
}

/// A required input. Errors: rejects the call if it is missing, so that the CPU kernel reports it.
inline StatusOr<const Tensor*> needed_here(const KernelContext& ctx, ArgIndex arg,
                                           const char* slot) {
  const Tensor* const tensor = ctx.find_in(arg);
  if (tensor != nullptr && tensor->initialized()) return tensor;
  return refuse("input {} holds no tensor", slot);
}

/// Device memory of the tensor; null for an absent argument.
/// The elements must not be accessed by the processor.
inline const float* floats(const Tensor* tensor) {
  return tensor == nullptr ? nullptr : reinterpret_cast<const float*>(tensor->raw());
}
inline const float* floats(const Tensor& tensor) {
  return floats(&tensor);
}
inline float* floats(Tensor* tensor) {
  return tensor == nullptr ? nullptr : reinterpret_cast<float*>(tensor->raw());
}
inline float* floats(Tensor& tensor) {
  return floats(&tensor);
}

/// An output to which shape inference has given the dims of `like`. Null if the op lacks it.
/// Errors: rejects the call for other dims.
inline StatusOr<Tensor*> output_like(const KernelContext& ctx, ArgIndex arg, const Tensor& like) {
  Tensor* const out = ctx.find_out(arg);
  if (out == nullptr || (out->dtype() == like.dtype() && out->dims() == like.dims())) return out;
  return refuse("the output is {} where {} is expected", describe(*out), describe(like));
}

}  // namespace millrace::gpu
