#pragma once

#include <algorithm>
#include <cstdint>

#include <llvm/ADT/ArrayRef.h>

#include "framework/base/status.h"
#include "kernels/kernel.h"

namespace millrace::kernels {

/// A tensor viewed as [outer, count, inner] around the axis that an op works along.
struct Extent {
  int64_t outer = 1;  ///< product of the dims before the axis
  int64_t count = 1;  ///< extent of the axis
  int64_t inner = 1;  ///< product of the dims after the axis: stride of the axis in elements
};

/// The extent around an axis, which may count from the end; a scalar has one element. Errors: the
/// axis is out of range; attr is the name of the attribute for the message.
inline StatusOr<Extent> extent_of(llvm::ArrayRef<int64_t> dims, int64_t axis, const char* attr) {
  const size_t bound = std::max<size_t>(dims.size(), 1);
  const auto at = ops::normalize_axis(axis, bound);
  if (!at) {
    return KernelContext::error("attribute '{}' is {}, which is outside of [-{}, {})", attr, axis,
                                bound, bound);
  }
  Extent extent;
  for (size_t i = 0; i < dims.size(); ++i) {
    const auto index = static_cast<int64_t>(i);
    int64_t& part = index < *at ? extent.outer : index == *at ? extent.count : extent.inner;
    part *= dims[i];
  }
  return extent;
}

}  // namespace millrace::kernels
