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

/// The LoD level whose sequences an op takes: the innermost; the outermost with all its rows; or
/// the outermost, whose entries are rows (outer_sequences_of()). They differ with several levels
/// only.
enum class SpanLevel { kInnermost, kOutermost, kOutermostIsRows };

/// The sequences of a tensor: those of its LoD or, if lengths are given, the leading rows of each
/// batch entry. Uses scratch slot 2. Errors: kExecution for lengths that do not fit.
/// \param steps  number of rows of a batch entry if lengths are given
/// \param slot     name of the tensor's slot, for messages
/// \param lengths  integers, one per batch entry; null: LoD
/// \param level    of the LoD
inline StatusOr<std::vector<RowSpan>> spans_of(const KernelContext& ctx, const Tensor& tensor,
                                               const char* slot, const Tensor* lengths,
                                               int64_t steps,
                                               SpanLevel level = SpanLevel::kInnermost) {
  std::vector<RowSpan> spans;
  if (lengths == nullptr) {
    LodLevel outer;
    llvm::ArrayRef<int64_t> offsets;
    if (level == SpanLevel::kOutermost) {
      MILLRACE_ASSIGN_OR_RETURN(outer, outer_rows_of(tensor, slot));
      offsets = outer;
    } else {
      const auto find = level == SpanLevel::kInnermost ? sequences_of : outer_sequences_of;
      MILLRACE_ASSIGN_OR_RETURN(offsets, find(tensor, slot));
    }
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
