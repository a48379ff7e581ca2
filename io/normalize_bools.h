#pragma once

#include <cstddef>
#include <span>

#include "framework/tensor/tensor.h"

namespace millrace::io {

/// Sets every non-zero byte of a bool tensor to 1; other tensors are unchanged. Files may hold
/// other bytes, which would cause undefined behaviour later.
inline void normalize_bools(Tensor& tensor) {
  if (tensor.dtype() != DType::kBool) return;
  for (std::byte& byte : std::span(tensor.raw(), static_cast<size_t>(tensor.bytes())))
    if (byte != std::byte{0}) byte = std::byte{1};
}

}  // namespace millrace::io
