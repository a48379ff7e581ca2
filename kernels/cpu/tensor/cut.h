#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/cpu/strided.h"

namespace millrace::kernels {

/// The elements of one dim that a slice selects: `count` of them from `first` on, `stride` apart.
/// Source: attributes starts, ends and strides of slice and strided_slice.
struct Cut {
  int64_t first = 0;  ///< index of the first selected element
  int64_t count = 0;
  int64_t stride = 1;  ///< may be negative
};

/// Bounds as programs write them: negative ones count from the end, all are clamped to the dim.
/// With a negative stride, an end of -1 means before the first element.
/// \param stride  not 0
inline Cut cut_dim(int64_t size, int64_t start, int64_t end, int64_t stride) {
  constexpr int64_t kLimit = int64_t{1} << 60;  // sums of clamped bounds cannot overflow
  start = std::clamp(start, -kLimit, kLimit);
  end = std::clamp(end, -kLimit, kLimit);
  stride = std::clamp(stride, -kLimit, kLimit);
  if (start < 0) start += size;
  if (end < 0 && !(end == -1 && stride < 0)) end += size;
  if (stride > 0) {
    const int64_t left = std::clamp<int64_t>(start, 0, size);
    const int64_t right = std::clamp<int64_t>(end, 0, size);
    return {left, right <= left ? 0 : (right - left + stride - 1) / stride, stride};
  }
  const int64_t right = std::min(start, size - 1);
  const int64_t left = std::max<int64_t>(end + 1, 0);
  return {right, right < left ? 0 : (right - left - stride) / -stride, stride};
}

/// A box selected from a tensor: maps the elements in the tensor's memory to dense ones.
struct CutBox {
  StridedBox box;      ///< to: the dense side; from: the tensor
  int64_t offset = 0;  ///< first element in the tensor, in elements

  /// \param cuts  one per dim, within the dim; strides may be negative
  CutBox(llvm::ArrayRef<int64_t> dims, llvm::ArrayRef<Cut> cuts) {
    const Dims strides = row_major(dims);
    for (size_t i = 0; i < dims.size(); ++i) {
      box.push(cuts[i].count, 1, cuts[i].stride * strides[i]);
      offset += cuts[i].first * strides[i];
    }
    box.to = row_major(box.dims);
  }
  /// The same with the tensor as the written side.
  [[nodiscard]] StridedBox reversed() const {
    StridedBox out = box;
    std::swap(out.to, out.from);
    return out;
  }
};

}  // namespace millrace::kernels
