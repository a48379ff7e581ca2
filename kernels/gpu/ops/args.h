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

/// Rejects the call unless all of these are of one type, f32 or f64; null ones are absent
/// arguments.
inline Status all_reals(std::initializer_list<const Tensor*> tensors) {
  const Tensor* first = nullptr;
  for (const Tensor* const tensor : tensors) {
    if (tensor == nullptr) continue;
    if (first == nullptr) first = tensor;
    const bool real = tensor->dtype() == DType::kFloat32 || tensor->dtype() == DType::kFloat64;
    if (!real || tensor->dtype() != first->dtype())
      return refuse("the GPU kernel is for f32 or f64, found {}", describe(*tensor));
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

/// Input X and output Out of an op that reads and writes f32 only.
struct FloatOperands {
  const Tensor* x;  ///< never null
  Tensor* out;      ///< never null
};
/// Their arguments, and the device.
struct FloatArgs {
  explicit FloatArgs(const KernelSetup& op)
      : device(device_of(op)), x(op.input("X")), out(op.output("Out")) {}
  /// Errors: rejects the call if X is missing or one of them is not f32.
  [[nodiscard]] StatusOr<FloatOperands> find(const KernelContext& ctx) const {
    MILLRACE_ASSIGN_OR_RETURN(const FloatOperands found, find_reals(ctx));
    MILLRACE_RETURN_IF_ERROR(all_floats({found.x, found.out}));
    return found;
  }
  /// The same of f32 or f64.
  [[nodiscard]] StatusOr<FloatOperands> find_reals(const KernelContext& ctx) const {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const from, needed_here(ctx, x, "X"));
    Tensor& to = ctx.out(out);
    MILLRACE_RETURN_IF_ERROR(all_reals({from, &to}));
    return FloatOperands{from, &to};
  }
  Device& device;  ///< runs the functors
  ArgIndex x;      ///< input X
  ArgIndex out;    ///< output Out
};

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
/// The same of f64.
inline const double* doubles(const Tensor* tensor) {
  return tensor == nullptr ? nullptr : reinterpret_cast<const double*>(tensor->raw());
}
inline double* doubles(Tensor* tensor) {
  return tensor == nullptr ? nullptr : reinterpret_cast<double*>(tensor->raw());
}

/// An output to which shape inference has given the dims of `like`. Null if the op lacks it.
/// Errors: rejects the call for other dims.
inline StatusOr<Tensor*> output_like(const KernelContext& ctx, ArgIndex arg, const Tensor& like) {
  Tensor* const out = ctx.find_out(arg);
  if (out == nullptr || (out->dtype() == like.dtype() && out->dims() == like.dims())) return out;
  return refuse("the output is {} where {} is expected", describe(*out), describe(like));
}

/// The kernel of an op with one operand of any type and one result: body(device, x, out) returns a
/// Status; out does not share memory with x.
template <typename Body>
Kernel one_operand(const KernelSetup& op, Body body) {
  return Kernel([&device = device_of(op), x = op.input("X"), out = op.output("Out"),
                 body = std::move(body)](const KernelContext& ctx) -> Status {
    MILLRACE_ASSIGN_OR_RETURN(const Tensor* const from, needed_here(ctx, x, "X"));
    Tensor* const to = ctx.out_value(out).template get_if<Tensor>();
    if (to == nullptr || !to->initialized() || (to->raw() == from->raw() && from->bytes() > 0))
      return refuse("X {}", describe(*from));
    return body(device, *from, *to);
  });
}

/// The tensors of a gradient kernel that reads one tensor of the forward op; all f32.
struct FloatGradient {
  const Tensor* y;   ///< that tensor
  const Tensor* dy;  ///< the gradient of the output
  Tensor* dx;        ///< dims of y; null: not requested
};
/// The same of f32 or f64.
/// Errors: rejects the call if y or dy is missing or of another type, or dx has other dims.
inline StatusOr<FloatGradient> real_gradient(const KernelContext& ctx, ArgIndex y_arg,
                                             const char* slot, ArgIndex dout, ArgIndex dx) {
  MILLRACE_ASSIGN_OR_RETURN(const Tensor* const y, needed_here(ctx, y_arg, slot));
  MILLRACE_ASSIGN_OR_RETURN(const Tensor* const dy, needed_here(ctx, dout, "Out@GRAD"));
  MILLRACE_ASSIGN_OR_RETURN(Tensor* const to, output_like(ctx, dx, *y));
  if (to != nullptr) MILLRACE_RETURN_IF_ERROR(all_reals({y, dy}));
  return FloatGradient{y, dy, to};
}
/// Errors: rejects the call if y or dy is missing or not f32, or dx has other dims.
inline StatusOr<FloatGradient> float_gradient(const KernelContext& ctx, ArgIndex y_arg,
                                              const char* slot, ArgIndex dout, ArgIndex dx) {
  MILLRACE_ASSIGN_OR_RETURN(const FloatGradient found, real_gradient(ctx, y_arg, slot, dout, dx));
  if (found.dx != nullptr) MILLRACE_RETURN_IF_ERROR(all_floats({found.y, found.dy}));
  return found;
}

}  // namespace millrace::gpu
