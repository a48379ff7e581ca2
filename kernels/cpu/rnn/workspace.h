#pragma once

#include <array>

#include "framework/tensor/tensor.h"

namespace millrace::kernels::rnn {

/// Pieces of memory that a kernel keeps between calls.
class Workspace {
 public:
  /// Piece `slot` with room for so many elements, not initialised; valid until the next call with
  /// the slot. Errors: kResource.
  template <typename T>
  StatusOr<T*> take(size_t slot, int64_t count) {
    MILLRACE_RETURN_IF_ERROR(pieces_[slot].resize(kDTypeOf<T>, {count}));
    return pieces_[slot].template data<T>();
  }

 private:
  std::array<Tensor, 12> pieces_;
};

}  // namespace millrace::kernels::rnn
