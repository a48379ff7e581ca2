#pragma once

#include <vector>

#include "kernels/cpu/labels.h"
#include "kernels/cpu/sequence/sequence.h"

namespace millrace::kernels {

/// One sequence inside a tensor of rows.
struct RowSpan {
  int64_t begin = 0;  ///< first row
  int64_t count = 0;  ///< number of rows, may be 0
};

/// The sequences of a tensor: those of its LoD or, if lengths are given, the leading rows of each
/// batch entry. Uses scratch slot 2. Errors: kExecution for lengths that do not fit.
/// \param steps  number of rows of a batch entry if lengths are given
/// \param slot     name of the tensor's slot, for messages
/// \param lengths  integers, one per batch entry; null: LoD
inline StatusOr<std::vector<RowSpan>> spans_of(const KernelContext& ctx, const Tensor& tensor,
                                               const char* slot, const Tensor* lengths,
                                               int64_t steps) {
  std::vector<RowSpan> spans;
  if (lengths == nullptr) {
    MILLRACE_ASSIGN_OR_RETURN(const llvm::ArrayRef<int64_t> offsets, sequences_of(tensor, slot));
    for (size_t i = 0; i + 1 < offsets.size(); ++i)
      spans.push_back({offsets[i], offsets[i + 1] - offsets[i]});
    return spans;
  }
  if (tensor.rank() == 0) return ctx.error("{} must have rows, found {}", slot, describe(tensor));
  if (lengths->numel() != tensor.dim(0))
    return ctx.error("lengths of {} must have {} elements, found {}", slot, tensor.dim(0),
                     describe(*lengths));
  MILLRACE_ASSIGN_OR_RETURN(const int64_t* const length, integers_of(ctx, *lengths, 2));
  for (int64_t b = 0; b < lengths->numel(); ++b) {
    if (length[b] < 0 || length[b] > steps)
      return ctx.error("length {} of {} is {}, expected one in [0, {}]", b, slot, length[b], steps);
    spans.push_back({b * steps, length[b]});
  }
  return spans;
}

}  // namespace millrace::kernels
