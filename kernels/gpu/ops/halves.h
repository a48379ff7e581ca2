#pragma once

#include "kernels/gpu/functors/halves.h"
#include "kernels/gpu/functors/products.h"
#include "kernels/gpu/ops/args.h"

namespace millrace::gpu {

/// True for f16 and bf16.
inline bool is_half(DType dtype) {
  return dtype == DType::kFloat16 || dtype == DType::kBfloat16;
}

/// Calls body with a value of the type in which a functor stores these elements: float, Half or
/// Brain. Errors: rejects other types.
template <typename Body>
Status with_stored_float(DType dtype, const Body& body) {
  switch (dtype) {
    case DType::kFloat32:
      return body(float{});
    case DType::kFloat16:
      return body(Half{});
    case DType::kBfloat16:
      return body(Brain{});
    default:
      return refuse("the GPU kernel is for f32, f16 and bf16, found {}", dtype_name(dtype));
  }
}

/// The type of the elements of a product's operands; null ones are absent. Errors: rejects others,
/// and operands of several types.
inline StatusOr<Element> element_of(std::initializer_list<const Tensor*> tensors) {
  const Tensor* first = nullptr;
  for (const Tensor* const tensor : tensors) {
    if (tensor == nullptr) continue;
    if (first == nullptr) first = tensor;
    if (tensor->dtype() != first->dtype())
      return refuse("{} beside {}", describe(*tensor), describe(*first));
  }
  if (first == nullptr || first->dtype() == DType::kFloat32) return Element::kFloat32;
  if (first->dtype() == DType::kFloat16) return Element::kFloat16;
  if (first->dtype() == DType::kBfloat16) return Element::kBfloat16;
  return refuse("the GPU kernel is for f32, f16 and bf16, found {}", describe(*first));
}

/// The kernel of an op for 16-bit floats as well. Where `kernel` rejects them, it gets f32 copies
/// of these inputs, and its results are rounded once: what the kernels of the processor do too. All
/// floats of a call have the same type then, but for the statistics of normalizations and the state
/// of optimizers, which may be f32. An optimizer with master weights updates these and rounds them
/// to the parameter.
/// \param kernel  returns kUnimplemented before it writes anything if it rejects the call
Kernel also_for_halves(const KernelSetup& op, Kernel kernel);

}  // namespace millrace::gpu
