#include <algorithm>
#include <string>
#include <vector>

#include "kernels/cpu/labels.h"
#include "kernels/cpu/sequence/row_spans.h"
#include "kernels/registry.h"

// Precision, recall and F1 of chunks: runs of tags of one type. A tag number is the type times the
// number of tags of the scheme, plus the tag. The number after all types means outside of any
// chunk.
namespace millrace::kernels {
namespace chunk_eval_kernels {
namespace {

enum class Tag { kBegin, kInside, kEnd, kSingle, kOutside };

struct Scheme {
  std::vector<Tag> tags;
  int64_t types = 0;
  std::vector<int64_t> excluded;

  [[nodiscard]] int64_t count() const { return static_cast<int64_t>(tags.size()); }
};

Scheme scheme_of(const KernelSetup& op) {
  Scheme scheme;
  const auto name = op.attr<std::string>("chunk_scheme");
  if (name == "IOB") scheme.tags = {Tag::kBegin, Tag::kInside};
  if (name == "IOE") scheme.tags = {Tag::kInside, Tag::kEnd};
  if (name == "IOBES") scheme.tags = {Tag::kBegin, Tag::kInside, Tag::kEnd, Tag::kSingle};
  if (name == "plain") scheme.tags = {Tag::kSingle};
  scheme.types = op.attr<int32_t>("num_chunk_types");
  scheme.excluded = op.attr<std::vector<int64_t>>("excluded_chunk_types");
  return scheme;
}

struct Chunk {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t type = 0;
  bool operator==(const Chunk&) const = default;
};

// "plain" joins adjacent tags of one type, so its only tag continues a chunk.
bool continues(const Scheme& scheme, Tag before, Tag now) {
  if (scheme.count() == 1) return true;
  const bool ended = before == Tag::kEnd || before == Tag::kSingle;
  return !ended && now != Tag::kBegin && now != Tag::kSingle;
}

// Chunks of one sequence in order. Errors: a tag number that is too large.
Status find_chunks(const KernelContext& ctx, const Scheme& scheme, const int64_t* tags,
                   int64_t count, std::vector<Chunk>& chunks) {
  chunks.clear();
  bool open = false;
  Tag before = Tag::kOutside;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t type = tags[i] / scheme.count();
    if (tags[i] < 0 || type > scheme.types ||
        (type == scheme.types && tags[i] % scheme.count() != 0))
      return ctx.error("tag {} is {}, expected one in [0, {}]", i, tags[i],
                       scheme.types * scheme.count());
    if (type == scheme.types) {
      open = false;
      continue;
    }
    const Tag now = scheme.tags[static_cast<size_t>(tags[i] % scheme.count())];
    if (open && chunks.back().type == type && continues(scheme, before, now)) {
      chunks.back().end = i + 1;
    } else {
      chunks.push_back({i, i + 1, type});
      open = true;
    }
    before = now;
  }
  std::erase_if(chunks, [&](const Chunk& chunk) {
    return std::find(scheme.excluded.begin(), scheme.excluded.end(), chunk.type) !=
           scheme.excluded.end();
  });
  return Ok();
}

struct ChunkEvalCounts {
  int64_t found = 0;
  int64_t right = 0;
  int64_t common = 0;
};

void add_counts(const std::vector<Chunk>& found, const std::vector<Chunk>& right,
                ChunkEvalCounts& counts) {
  counts.found += static_cast<int64_t>(found.size());
  counts.right += static_cast<int64_t>(right.size());
  // both are ordered, and chunks of one sequence do not overlap
  auto next = right.begin();
  for (const Chunk& chunk : found) {
    while (next != right.end() && next->begin < chunk.begin) ++next;
    if (next != right.end() && *next == chunk) ++counts.common;
  }
}

struct ChunkEvalSlots {
  ArgIndex inference;
  ArgIndex label;
  ArgIndex lengths;
  ArgIndex precision;
  ArgIndex recall;
  ArgIndex f1;
  ArgIndex found;
  ArgIndex right;
  ArgIndex common;
};

void store(const KernelContext& ctx, const ChunkEvalSlots& slots, const ChunkEvalCounts& counts) {
  const auto ratio = [&](int64_t all) {
    return all == 0 ? 0.0F : static_cast<float>(counts.common) / static_cast<float>(all);
  };
  const float precision = ratio(counts.found);
  const float recall = ratio(counts.right);
  *ctx.out(slots.precision).data<float>() = precision;
  *ctx.out(slots.recall).data<float>() = recall;
  *ctx.out(slots.f1).data<float>() =
      counts.common == 0 ? 0.0F : 2 * precision * recall / (precision + recall);
  *ctx.out(slots.found).data<int64_t>() = counts.found;
  *ctx.out(slots.right).data<int64_t>() = counts.right;
  *ctx.out(slots.common).data<int64_t>() = counts.common;
}

Status run(const KernelContext& ctx, const ChunkEvalSlots& slots, const Scheme& scheme) {
  const Tensor& inference = ctx.in(slots.inference);
  const Tensor& label = ctx.in(slots.label);
  if (inference.numel() != label.numel())
    return ctx.error("Inference and Label must have the same number of tags, found {} and {}",
                     describe(inference), describe(label));
  const Tensor* const lengths = ctx.find_in(slots.lengths);
  const int64_t steps =
      lengths == nullptr || inference.dim(0) == 0 ? 0 : inference.numel() / inference.dim(0);
  MILLRACE_ASSIGN_OR_RETURN(const std::vector<RowSpan> spans,
                            spans_of(ctx, inference, "Inference", lengths, steps));
  MILLRACE_ASSIGN_OR_RETURN(const int64_t* const found, integers_of(ctx, inference, 0));
  MILLRACE_ASSIGN_OR_RETURN(const int64_t* const right, integers_of(ctx, label, 1));
  ChunkEvalCounts counts;
  std::vector<Chunk> found_chunks;
  std::vector<Chunk> right_chunks;
  for (const RowSpan& span : spans) {
    MILLRACE_RETURN_IF_ERROR(
        find_chunks(ctx, scheme, found + span.begin, span.count, found_chunks));
    MILLRACE_RETURN_IF_ERROR(
        find_chunks(ctx, scheme, right + span.begin, span.count, right_chunks));
    add_counts(found_chunks, right_chunks, counts);
  }
  store(ctx, slots, counts);
  return Ok();
}

StatusOr<Kernel> chunk_eval(const KernelSetup& op) {
  const ChunkEvalSlots slots{
      op.input("Inference"),       op.input("Label"),           op.input("SeqLength"),
      op.output("Precision"),      op.output("Recall"),         op.output("F1-Score"),
      op.output("NumInferChunks"), op.output("NumLabelChunks"), op.output("NumCorrectChunks")};
  return Kernel([slots, scheme = scheme_of(op)](const KernelContext& ctx) {
    return run(ctx, slots, scheme);
  });
}

}  // namespace
}  // namespace chunk_eval_kernels

void add_sequence_chunk_eval(KernelRegistry& registry) {
  registry.add("chunk_eval", chunk_eval_kernels::chunk_eval);
}

}  // namespace millrace::kernels
