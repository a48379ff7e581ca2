#pragma once

#include "kernels/gpu/functors/order.h"
#include "kernels/gpu/ops/args.h"

namespace millrace::gpu {

/// The elements of a tensor for functors of several types; bool counts as u8. Errors: rejects types
/// that are no numbers.
inline StatusOr<Elements> elements_of(const Tensor& tensor) {
  const auto typed = [&](ElementType type) { return Elements{tensor.raw(), type}; };
  switch (tensor.dtype()) {
    case DType::kFloat32:
      return typed(ElementType::kF32);
    case DType::kFloat64:
      return typed(ElementType::kF64);
    case DType::kFloat16:
      return typed(ElementType::kF16);
    case DType::kBfloat16:
      return typed(ElementType::kBf16);
    case DType::kInt8:
      return typed(ElementType::kI8);
    case DType::kUint8:
    case DType::kBool:
      return typed(ElementType::kU8);
    case DType::kInt16:
      return typed(ElementType::kI16);
    case DType::kInt32:
      return typed(ElementType::kI32);
    case DType::kInt64:
      return typed(ElementType::kI64);
    default:
      return refuse("the GPU kernel does not read {}", describe(tensor));
  }
}

}  // namespace millrace::gpu
