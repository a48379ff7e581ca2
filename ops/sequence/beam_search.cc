#include "ops/infer_helpers.h"
#include "ops/registry.h"

// Beam search: one time step of the search, and the walk back through all time steps. The LoD
// levels are the beams of each source, and the continuations of each beam.
namespace millrace::ops {
namespace beam_search {
namespace {

constexpr int32_t kBeamLevels = 2;

Status infer(InferContext& ctx) {
  MILLRACE_RETURN_IF_ERROR(check_rank(ctx, "pre_ids", 1, 2));
  MILLRACE_RETURN_IF_ERROR(check_rank(ctx, "scores", 2, 2));
  MILLRACE_RETURN_IF_ERROR(check_same_count(ctx, "pre_ids", "pre_scores"));
  if (ctx.has_input("ids")) MILLRACE_RETURN_IF_ERROR(check_same_dims(ctx, "ids", "scores"));
  const DType scores = ctx.input("pre_scores").dtype;
  ctx.set_output("selected_ids", tensor_meta(DType::kInt64, {-1, 1}, kBeamLevels));
  ctx.set_output("selected_scores", tensor_meta(scores, {-1, 1}, kBeamLevels));
  ctx.set_output("parent_idx", DType::kInt32, {-1});
  return Ok();
}

Status infer_beam_search_decode(InferContext& ctx) {
  const DType scores = ctx.input("Scores").dtype;
  ctx.set_output("SentenceIds", tensor_meta(DType::kInt64, {-1}, kBeamLevels));
  ctx.set_output("SentenceScores", tensor_meta(scores, {-1}, kBeamLevels));
  return Ok();
}

}  // namespace
}  // namespace beam_search

void add_sequence_beam_search(OpRegistry& registry) {
  using namespace beam_search;
  registry.add(
      OpDef("beam_search")
          .doc("the beam_size best continuations of the beams of each source")
          .input("pre_ids", "last token of each beam, int64 [beams, 1]")
          .input("pre_scores", "score of each beam so far, [beams, 1]")
          .input("ids", "candidates [beams, width]; absent: their columns", Arity::kOptional)
          .input("scores", "of the candidates; LoD says which beams belong to a source")
          .output("selected_ids", "[kept, 1], ordered by beam, then score")
          .output("selected_scores", "[kept, 1]")
          .output("parent_idx", "int32 [kept]: the beam that each continues", Arity::kOptional)
          .attr("level", 0, "LoD level whose entries are sources")
          .range(0)
          .required_attr<int32_t>("beam_size", "how many to keep for a source")
          .range(1)
          .required_attr<int32_t>("end_id", "token that ends a beam")
          .attr("is_accumulated", true,
                "scores hold whole beams; false: probabilities of the candidates")
          .infer(infer));
  registry.add(
      OpDef("beam_search_decode")
          .doc("all tokens of each beam, found by walking back through the time steps of a search")
          .input("Ids", "selected ids of each time step", Arity::kOne, kTensorArray)
          .input("Scores", "selected scores of each time step", Arity::kOne, kTensorArray)
          .output("SentenceIds", "int64; sequences of each source, best score first")
          .output("SentenceScores", "score of each token")
          .required_attr<int32_t>("beam_size", "maximum number of beams per source")
          .range(1)
          .required_attr<int32_t>("end_id", "token that ends a beam")
          .infer(infer_beam_search_decode));
}

}  // namespace millrace::ops
