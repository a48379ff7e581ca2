#pragma once

#include <cstdint>

#include <llvm/ADT/ArrayRef.h>

#include "kernels/cpu/index.h"
#include "kernels/kernel.h"
#include "ops/infer_context.h"

namespace millrace::kernels {

/// A tensor seen from one of its dims: [outer, size, inner]. Rank 0 counts as one element.
/// Element (o, s, i) is at offset (o * size + s) * inner + i.
struct AxisView {
  int64_t outer = 1;  ///< product of the dims before the axis
  int64_t size = 1;   ///< extent of the axis
  int64_t inner = 1;  ///< product of the dims after the axis

  AxisView(llvm::ArrayRef<int64_t> dims, size_t axis) {
    if (dims.empty()) return;
    outer = ops::dims_product(dims.take_front(axis));
    size = dims[axis];
    inner = ops::dims_product(dims.drop_front(axis + 1));
  }
};

/// Calls fn(place, k) for every element k of an index of [outer, count, inner], where place is the
/// tensor element that the index names along the axis. The index must be in range.
/// k counts in memory order, so fn may write element k of a result. Not parallel: several k may
/// name the same place.
template <typename I, typename Fn>
void each_along(const AxisView& view, const I* index, int64_t count, Fn&& fn) {
  int64_t k = 0;
  for (int64_t o = 0; o < view.outer; ++o) {
    for (int64_t j = 0; j < count; ++j) {
      for (int64_t i = 0; i < view.inner; ++i, ++k)
        fn((o * view.size + static_cast<int64_t>(index[k])) * view.inner + i, k);
    }
  }
}

/// Number of elements of an index along the axis. Errors: its shape differs from that of the tensor
/// in another dim, except for a smaller dim 0.
inline StatusOr<int64_t> count_along(const Tensor& tensor, const Tensor& index, size_t axis) {
  bool fits = tensor.rank() == index.rank();
  for (size_t d = 0; fits && d < tensor.rank(); ++d)
    fits = d == axis || tensor.dims()[d] == index.dims()[d] ||
           (d == 0 && index.dims()[d] < tensor.dims()[d]);
  if (!fits) {
    return KernelContext::error("Index {} must have the dims of {} except dim {}", describe(index),
                                describe(tensor), axis);
  }
  return tensor.rank() == 0 ? 1 : index.dims()[axis];
}

}  // namespace millrace::kernels
