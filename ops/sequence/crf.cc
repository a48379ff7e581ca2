#include "ops/infer_helpers.h"
#include "ops/lod_offsets.h"
#include "ops/registry.h"

// Linear-chain conditional random fields, and chunk_eval, the metric used with them.
namespace millrace::ops {
namespace crf {
namespace {

// Transition has two more rows than tags: the scores for starting and for ending with a tag.
Status check_transition(const InferContext& ctx) {
  const VarMeta& emission = ctx.input("Emission");
  const VarMeta& transition = ctx.input("Transition");
  if (!dims_known(transition)) return Ok();
  MILLRACE_RETURN_IF_ERROR(check_rank(ctx, "Transition", 2, 2));
  const int64_t tags = transition.dims[1];
  if (tags >= 0 && !dims_agree(transition.dims[0], tags + 2)) {
    return ctx.error("'Transition' has shape {}, expected [tags + 2, tags]",
                     dims_text(transition.dims));
  }
  if (dims_known(emission) && emission.rank() > 0 && !dims_agree(emission.dims.back(), tags)) {
    return ctx.error("'Emission' has shape {}, expected {} tags as 'Transition' {}",
                     dims_text(emission.dims), tags, dims_text(transition.dims));
  }
  return Ok();
}

Status infer(InferContext& ctx) {
  MILLRACE_RETURN_IF_ERROR(check_transition(ctx));
  const VarMeta& emission = ctx.input("Emission");
  if (!dims_known(emission)) return Ok();
  MILLRACE_RETURN_IF_ERROR(check_rank(ctx, "Emission", 2, 3));
  const bool padded = ctx.has_input("Length");
  VarMeta same = emission;
  if (!padded) same = without_lod(std::move(same));
  ctx.set_output("Alpha", same);
  ctx.set_output("EmissionExps", std::move(same));
  ctx.copy("Transition", "TransitionExps");
  int64_t sequences = padded ? emission.dims[0] : -1;
  if (!padded && !emission.lod.empty()) sequences = emission.lod.sequences(emission.lod.size() - 1);
  ctx.set_output("LogLikelihood", emission.dtype, {sequences, 1});
  return Ok();
}

Status infer_decoding(InferContext& ctx) {
  MILLRACE_RETURN_IF_ERROR(check_transition(ctx));
  const VarMeta& emission = ctx.input("Emission");
  if (!dims_known(emission)) return Ok();
  MILLRACE_RETURN_IF_ERROR(check_rank(ctx, "Emission", 2, 3));
  Dims dims{emission.dims[0],
            ctx.has_input("Length") && emission.rank() == 3 ? emission.dims[1] : 1};
  ctx.set_output("ViterbiPath", tensor_with_lod_of(emission, DType::kInt64, dims));
  return Ok();
}

Status infer_chunks(InferContext& ctx) {
  MILLRACE_RETURN_IF_ERROR(check_same_count(ctx, "Inference", "Label"));
  for (const char* const slot : {"Precision", "Recall", "F1-Score"})
    ctx.set_output(slot, DType::kFloat32, {1});
  for (const char* const slot : {"NumInferChunks", "NumLabelChunks", "NumCorrectChunks"})
    ctx.set_output(slot, DType::kInt64, {1});
  return Ok();
}

}  // namespace
}  // namespace crf

void add_sequence_crf(OpRegistry& registry) {
  using namespace crf;
  registry.add(
      OpDef("linear_chain_crf")
          .doc("negative log likelihood of tag sequences")
          .input("Emission", "scores, sequences [rows, tags] or [batch, length, tags]")
          .input("Transition", "[tags + 2, tags]; rows 0 and 1: start and end")
          .input("Label", "correct tags")
          .input("Length", "length of each sequence if Emission is padded", Arity::kOptional)
          .intermediate("Alpha", "forward scores")
          .intermediate("EmissionExps", "exp of Emission")
          .intermediate("TransitionExps", "exp of Transition")
          .output("LogLikelihood", "[sequences, 1]")
          .infer(infer)
          .grad({"linear_chain_crf_grad",
                 {"Alpha", "Emission", "EmissionExps", "Label", "Length", "LogLikelihood@GRAD",
                  "Transition", "TransitionExps"},
                 {"Emission@GRAD", "Transition@GRAD"},
                 {{"Emission@GRAD", "EmissionExps"}, {"Transition@GRAD", "TransitionExps"}}}));
  registry.add(
      OpDef("crf_decoding")
          .doc("best tag sequence; with Label: whether each tag is correct")
          .input("Emission", "scores, sequences [rows, tags] or [batch, length, tags]")
          .input("Transition", "[tags + 2, tags]; rows 0 and 1: start and end")
          .input("Label", "correct tags", Arity::kOptional)
          .input("Length", "length of each sequence if Emission is padded", Arity::kOptional)
          .output("ViterbiPath", "int64, LoD of Emission")
          .infer(infer_decoding));
  registry.add(
      OpDef("chunk_eval")
          .doc("precision, recall and F1 of chunks of tags")
          .input("Inference", "tags found")
          .input("Label", "correct tags")
          .input("SeqLength", "length of each sequence if they are padded", Arity::kOptional)
          .output("Precision", "one float32")
          .output("Recall", "one float32")
          .output("F1-Score", "one float32")
          .output("NumInferChunks", "one int64")
          .output("NumLabelChunks", "one int64")
          .output("NumCorrectChunks", "one int64")
          .required_attr<int32_t>("num_chunk_types", "kinds of chunks")
          .range(1)
          .attr("chunk_scheme", "IOB", "how tags mark chunks")
          .one_of({"IOB", "IOE", "IOBES", "plain"})
          .attr("excluded_chunk_types", std::vector<int32_t>{}, "kinds not counted")
          .range(0)
          .infer(infer_chunks));
}

}  // namespace millrace::ops
