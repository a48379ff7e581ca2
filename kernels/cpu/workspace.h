#pragma once

#include <array>

#include "framework/tensor/tensor.h"

namespace millrace::kernels {

/// Buffers that a kernel keeps between calls.
/// Kernels number their buffers with an enum; they grow as needed and are freed with the kernel.
/// Thread-safety: one call at a time.
class Workspace {
 public:
  /// Buffer `slot` with room for that many elements, not initialized; valid until the next call
  /// with the same slot. Errors: kResource.
  template <typename T>
  StatusOr<T*> take(size_t slot, int64_t count) {
    MILLRACE_RETURN_IF_ERROR(pieces_[slot].resize(kDTypeOf<T>, {count}));
    return pieces_[slot].template data<T>();
  }

  /// Memory of an output; a buffer if the program does not request the output or has it in another
  /// size. Errors: kResource.
  template <typename T>
  StatusOr<T*> output_or_take(Tensor* output, size_t slot, int64_t count) {
    if (output != nullptr && output->dtype() == kDTypeOf<T> && output->numel() == count)
      return output->template data<T>();
    return take<T>(slot, count);
  }

 private:
  std::array<Tensor, 12> pieces_;  ///< by number; each keeps its largest size
};

}  // namespace millrace::kernels
