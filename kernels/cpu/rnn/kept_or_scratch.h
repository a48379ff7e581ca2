#pragma once

#include <cstddef>
#include <cstdint>

#include "framework/base/status.h"
#include "framework/tensor/tensor.h"
#include "kernels/cpu/workspace.h"

namespace millrace::kernels::rnn {

/// Memory of an intermediate output, or a workspace buffer if the program does not request it.
/// \param piece  number of the buffer in the workspace
/// Errors: kResource.
/// \param count  number of elements
template <typename T>
StatusOr<T*> kept_or_scratch(Tensor* output, Workspace& work, size_t piece, int64_t count) {
  if (output != nullptr && output->numel() == count) return output->data<T>();
  return work.take<T>(piece, count);
}

/// True if an optional tensor is absent, or has that many elements of that type.
inline bool fits_if_given(const Tensor* tensor, int64_t count, DType dtype) {
  return tensor == nullptr || (tensor->numel() == count && tensor->dtype() == dtype);
}

}  // namespace millrace::kernels::rnn
