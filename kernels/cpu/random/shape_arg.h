#pragma once

#include "kernels/cpu/int_list.h"
#include "kernels/kernel.h"

namespace millrace::kernels {

/// Dims of the output of an op that creates a tensor: from attributes, from tensors, or from one
/// dim of another tensor (the *_batch_size_like ops).
class ShapeArg {
 public:
  explicit ShapeArg(const KernelSetup& op);

  /// Sizes the output. Errors: dims that no tensor has; tensors that hold no integers.
  Status size(const KernelContext& ctx, Tensor& out) const;

 private:
  IntList shape_;
  ArgIndex like_;
  int64_t like_dim_ = 0;
  int64_t own_dim_ = 0;
  DType dtype_;
};

}  // namespace millrace::kernels
