#pragma once

#include <string>

#include <llvm/ADT/ArrayRef.h>
#include <llvm/ADT/StringRef.h>

#include "framework/tensor/tensor.h"
#include "kernels/kernel.h"
#include "ops/nn/window.h"

namespace millrace::kernels {

/// How a kernel moves over images; read once when the op's kernel is made.
struct WindowAttrs {
  Dims strides;        ///< one entry per spatial dim, also of dilations
  Dims dilations;      ///< empty: 1
  Dims paddings;       ///< one or two entries per spatial dim
  bool same = false;   ///< padding_algorithm SAME: computed from the sizes
  bool valid = false;  ///< padding_algorithm VALID: no padding
};
/// Reads those of the attributes strides, dilations, paddings and padding_algorithm that the op
/// has.
WindowAttrs read_window_attrs(const KernelSetup& op);

/// The window over an input with these spatial dims. Errors: a list of the wrong length, or a
/// stride or dilation below 1 (gradient ops have no shape inference that checks them).
StatusOr<ops::Window> window_over(const WindowAttrs& attrs, llvm::ArrayRef<int64_t> kernel,
                                  llvm::ArrayRef<int64_t> input);

/// True if attribute data_format or the like says that channels are the last dim.
bool channels_last(const KernelSetup& op, llvm::StringRef attr);

/// Spatial dims of an image tensor of rank >= 2.
inline llvm::ArrayRef<int64_t> spatial_dims(llvm::ArrayRef<int64_t> dims, bool last) {
  return last ? dims.slice(1, dims.size() - 2) : dims.drop_front(2);
}
/// Extent of the channel dim of an image tensor of rank >= 2.
inline int64_t channel_count(llvm::ArrayRef<int64_t> dims, bool last) {
  return last ? dims.back() : dims[1];
}

/// Sets all elements to 0.
void fill_zero(Tensor& tensor);

}  // namespace millrace::kernels
