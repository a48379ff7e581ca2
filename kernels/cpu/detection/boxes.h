#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "framework/tensor/tensor.h"
#include "kernels/kernel.h"

namespace millrace::kernels {

/// Area of a box (left, top, right, bottom); 0 if right < left or bottom < top. If normalized,
/// corners are points; else they are pixels that both belong to the box.
template <typename T>
T box_area(const T* box, bool normalized) {
  if (box[2] < box[0] || box[3] < box[1]) return T{0};
  const T extra = normalized ? T{0} : T{1};
  return (box[2] - box[0] + extra) * (box[3] - box[1] + extra);
}

/// Area of the intersection of two boxes / area of their union; 0 for disjoint boxes.
template <typename T>
T box_overlap(const T* a, const T* b, bool normalized) {
  if (b[0] > a[2] || b[2] < a[0] || b[1] > a[3] || b[3] < a[1]) return T{0};
  const T extra = normalized ? T{0} : T{1};
  const T width = std::min(a[2], b[2]) - std::max(a[0], b[0]) + extra;
  const T height = std::min(a[3], b[3]) - std::max(a[1], b[1]) + extra;
  const T common = width * height;
  return common / (box_area(a, normalized) + box_area(b, normalized) - common);
}

/// Iterates over the boxes in the given order and keeps those that overlap no kept box by more than
/// the threshold. After each kept box the threshold is multiplied by eta while it is above 1/2.
/// \param candidates  indices of boxes, the best one first
/// \param overlap  overlap(i, k) of two candidates
template <typename T, typename Overlap>
std::vector<int64_t> suppress(llvm::ArrayRef<int64_t> candidates, T threshold, T eta,
                              Overlap&& overlap) {
  std::vector<int64_t> kept;
  for (const int64_t candidate : candidates) {
    // a box that overlaps a kept box too much is dropped, and suppresses no other box itself
    bool good = true;
    for (size_t i = 0; good && i < kept.size(); ++i)
      good = overlap(candidate, kept[i]) <= threshold;
    if (!good) continue;
    kept.push_back(candidate);
    if (eta < 1 && threshold > static_cast<T>(0.5)) threshold *= eta;
  }
  return kept;
}

/// Row offsets of the parts of a tensor, with the end: from a tensor of counts, else from LoD.
/// \param counts  one integer per part; null: LoD of tensor, which must have one
/// Errors: neither is present; counts are negative or do not add up to the rows.
StatusOr<std::vector<int64_t>> part_offsets(const Tensor& tensor, const Tensor* counts,
                                            const char* slot);

/// Sizes an i32 output [values.size()] or [values.size(), 1] and fills it. Does nothing if absent.
Status put_int32(Tensor* out, llvm::ArrayRef<int64_t> values, bool column = false);

}  // namespace millrace::kernels
