#include <algorithm>
#include <cstring>
#include <vector>

#include "kernels/cpu/convert.h"
#include "kernels/cpu/sequence/row_spans.h"
#include "kernels/dispatch.h"
#include "kernels/registry.h"

// Label sequences: collapsing an alignment (ctc_align), and the edit distance of two sequences.
namespace millrace::kernels {
namespace ctc {
namespace {

struct AlignSettings {
  int64_t blank = 0;
  bool merge = true;
  int64_t padding = 0;
};

// The remaining labels of one sequence.
template <typename T>
void align(const AlignSettings& s, const T* labels, int64_t count, std::vector<T>& out) {
  for (int64_t i = 0; i < count; ++i) {
    const bool repeated = s.merge && i > 0 && labels[i] == labels[i - 1];
    if (static_cast<int64_t>(labels[i]) != s.blank && !repeated) out.push_back(labels[i]);
  }
}

template <typename T>
Status align_sequences(const AlignSettings& s, const Tensor& input, llvm::ArrayRef<int64_t> offsets,
                       Tensor& output) {
  std::vector<T> left;
  LodLevel level{0};
  for (size_t i = 0; i + 1 < offsets.size(); ++i) {
    align(s, input.data<T>() + offsets[i], offsets[i + 1] - offsets[i], left);
    level.push_back(static_cast<int64_t>(left.size()));
  }
  MILLRACE_RETURN_IF_ERROR(output.resize(input.dtype(), {level.back(), 1}));
  std::copy(left.begin(), left.end(), output.data<T>());
  output.set_lod(Lod({std::move(level)}));
  return Ok();
}

template <typename T>
void align_rows(const AlignSettings& s, const Tensor& input, const std::vector<RowSpan>& spans,
                Tensor& output, Tensor* lengths) {
  const int64_t width = input.dim(1);
  std::vector<T> left;
  for (size_t i = 0; i < spans.size(); ++i) {
    left.clear();
    align(s, input.data<T>() + spans[i].begin, spans[i].count, left);
    T* const row = output.data<T>() + static_cast<int64_t>(i) * width;
    std::fill_n(row, width, static_cast<T>(s.padding));
    std::copy(left.begin(), left.end(), row);
    if (lengths != nullptr) lengths->data<T>()[i] = static_cast<T>(left.size());
  }
}

StatusOr<Kernel> ctc_align(const KernelSetup& op) {
  const ArgIndex input = op.input("Input");
  const ArgIndex lengths = op.input("InputLength");
  const ArgIndex output = op.output("Output");
  const ArgIndex output_lengths = op.output("OutputLength");
  const AlignSettings s{op.attr<int32_t>("blank"), op.attr<bool>("merge_repeated"),
                        op.attr<int32_t>("padding_value")};
  return Kernel([=](const KernelContext& ctx) -> Status {
    const Tensor& from = ctx.in(input);
    const Tensor* const given = ctx.find_in(lengths);
    return dispatch<IntTypes>(from.dtype(), [&](auto tag) -> Status {
      using T = typename decltype(tag)::type;
      if (given == nullptr) {
        MILLRACE_ASSIGN_OR_RETURN(const LodLevel offsets, outer_rows_of(from, "Input"));
        if (from.numel() != from.dim(0))
          return ctx.error("Input must have one label per row, found {}", describe(from));
        return align_sequences<T>(s, from, offsets, ctx.out(output));
      }
      MILLRACE_ASSIGN_OR_RETURN(const std::vector<RowSpan> spans,
                                spans_of(ctx, from, "Input", given, from.dim(1)));
      align_rows<T>(s, from, spans, ctx.out(output), ctx.find_out(output_lengths));
      return Ok();
    });
  });
}

// Number of insertions, deletions and replacements; row has right_count + 1 elements.
template <typename T>
int64_t count_edits(const T* found, int64_t found_count, const T* right, int64_t right_count,
                    std::vector<int64_t>& row) {
  row.resize(static_cast<size_t>(right_count) + 1);
  for (size_t j = 0; j < row.size(); ++j) row[j] = static_cast<int64_t>(j);
  for (int64_t i = 0; i < found_count; ++i) {
    int64_t diagonal = row[0];
    row[0] = i + 1;
    for (int64_t j = 0; j < right_count; ++j) {
      const auto at = static_cast<size_t>(j);
      const int64_t replaced = diagonal + (found[i] == right[j] ? 0 : 1);
      diagonal = row[at + 1];
      row[at + 1] = std::min({replaced, row[at] + 1, diagonal + 1});
    }
  }
  return row.back();
}

struct DistanceSlots {
  ArgIndex hyps;
  ArgIndex refs;
  ArgIndex hyps_lengths;
  ArgIndex refs_lengths;
  ArgIndex out;
  ArgIndex count;
};

Status run_distance(const KernelContext& ctx, const DistanceSlots& slots, bool normalized) {
  const Tensor& hyps = ctx.in(slots.hyps);
  const Tensor& refs = ctx.in(slots.refs);
  if (hyps.dtype() != refs.dtype())
    return ctx.error("Hyps and Refs must be of one type, found {} and {}", describe(hyps),
                     describe(refs));
  const auto spans = [&](const Tensor& tensor, const char* slot, ArgIndex lengths) {
    return spans_of(ctx, tensor, slot, ctx.find_in(lengths), tensor.rank() > 1 ? tensor.dim(1) : 1,
                    SpanLevel::kOutermostIsRows);
  };
  MILLRACE_ASSIGN_OR_RETURN(const std::vector<RowSpan> found,
                            spans(hyps, "Hyps", slots.hyps_lengths));
  MILLRACE_ASSIGN_OR_RETURN(const std::vector<RowSpan> right,
                            spans(refs, "Refs", slots.refs_lengths));
  if (found.size() != right.size())
    return ctx.error("Hyps and Refs must have the same number of sequences, found {} and {}",
                     found.size(), right.size());
  Tensor& out = ctx.out(slots.out);
  MILLRACE_RETURN_IF_ERROR(out.resize(DType::kFloat32, {static_cast<int64_t>(found.size()), 1}));
  if (Tensor* const count = ctx.find_out(slots.count))
    *count->data<int64_t>() = static_cast<int64_t>(found.size());
  return dispatch<IntTypes>(hyps.dtype(), [&](auto tag) -> Status {
    using T = typename decltype(tag)::type;
    std::vector<int64_t> row;
    for (size_t i = 0; i < found.size(); ++i) {
      if (normalized && right[i].count == 0)
        return ctx.error("sequence {} of Refs is empty, so no distance can be normalized by it", i);
      const auto steps =
          static_cast<float>(count_edits(hyps.data<T>() + found[i].begin, found[i].count,
                                         refs.data<T>() + right[i].begin, right[i].count, row));
      out.data<float>()[i] = normalized ? steps / static_cast<float>(right[i].count) : steps;
    }
    return Ok();
  });
}

StatusOr<Kernel> edit_distance(const KernelSetup& op) {
  const DistanceSlots slots{op.input("Hyps"),       op.input("Refs"), op.input("HypsLength"),
                            op.input("RefsLength"), op.output("Out"), op.output("SequenceNum")};
  const bool normalized = op.attr<bool>("normalized");
  return Kernel(
      [=](const KernelContext& ctx) -> Status { return run_distance(ctx, slots, normalized); });
}

}  // namespace
}  // namespace ctc

void add_sequence_ctc(KernelRegistry& registry) {
  using namespace ctc;
  registry.add("ctc_align", ctc_align);
  registry.add("edit_distance", edit_distance);
}

}  // namespace millrace::kernels
