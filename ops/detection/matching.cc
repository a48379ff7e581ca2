#include "ops/infer_helpers.h"
#include "ops/registry.h"

namespace millrace::ops {
namespace {

// One row for each image, that is, for each sequence of DistMat.
Status infer_bipartite_match(InferContext& ctx) {
  MILLRACE_RETURN_IF_ERROR(check_rank(ctx, "DistMat", 2, 2));
  const VarMeta dist = ctx.input("DistMat");
  const Dims dims = {-1, dist.has_shape ? dist.dims[1] : -1};
  ctx.set_output("ColToRowMatchIndices", DType::kInt32, dims);
  ctx.set_output("ColToRowMatchDist", dist.dtype, dims);
  return Ok();
}

Status infer_target_assign(InferContext& ctx) {
  MILLRACE_RETURN_IF_ERROR(check_rank(ctx, "X", 3, 3));
  MILLRACE_RETURN_IF_ERROR(check_rank(ctx, "MatchIndices", 2, 2));
  const VarMeta x = ctx.input("X");
  const VarMeta match = ctx.input("MatchIndices");
  Dims dims = {-1, -1, x.has_shape ? x.dims[2] : -1};
  if (match.has_shape) std::copy_n(match.dims.begin(), 2, dims.begin());
  ctx.set_output("Out", x.dtype, dims);
  dims[2] = 1;
  ctx.set_output("OutWeight", DType::kFloat32, dims);
  return Ok();
}

Status infer_mine_hard_examples(InferContext& ctx) {
  MILLRACE_RETURN_IF_ERROR(check_rank(ctx, "MatchIndices", 2, 2));
  MILLRACE_RETURN_IF_ERROR(check_same_dims(ctx, "MatchIndices", "MatchDist"));
  MILLRACE_RETURN_IF_ERROR(check_same_dims(ctx, "MatchIndices", "ClsLoss"));
  if (ctx.has_input("LocLoss"))
    MILLRACE_RETURN_IF_ERROR(check_same_dims(ctx, "MatchIndices", "LocLoss"));
  const VarMeta match = ctx.input("MatchIndices");
  ctx.set_output("UpdatedMatchIndices", match);
  ctx.set_output("NegIndices", tensor_meta(DType::kInt32, {-1, 1}, 1));
  return Ok();
}

}  // namespace

/// bipartite_match, target_assign, mine_hard_examples
void add_detection_matching(OpRegistry& registry) {
  registry.add(
      OpDef("bipartite_match")
          .doc("pairs rows and columns greedily by the largest entry of a matrix")
          .input("DistMat", "[rows of all images, columns], one LoD level")
          .output("ColToRowMatchIndices", "int32 [images, columns]; row, or -1")
          .output("ColToRowMatchDist", "[images, columns]; entry of the pair")
          .attr("match_type", "bipartite", "per_prediction also pairs the remaining columns")
          .one_of({"bipartite", "per_prediction", ""})
          .attr("dist_threshold", 0.5F, "smallest entry of a pair per prediction")
          .infer(infer_bipartite_match));
  registry.add(OpDef("target_assign")
                   .doc("for each prediction the target that was matched to it")
                   .input("X", "[targets of all images, predictions or 1, width], one LoD level")
                   .input("MatchIndices", "int32 [images, predictions]; target, or -1")
                   .input("NegIndices",
                          "int32 [all, 1], one LoD level; predictions that shall "
                          "count with mismatch_value",
                          Arity::kOptional)
                   .output("Out", "[images, predictions, width]")
                   .output("OutWeight", "[images, predictions, 1]; 1 where a target was matched")
                   .attr("mismatch_value", 0, "value where no target was matched")
                   .infer(infer_target_assign));
  registry.add(OpDef("mine_hard_examples")
                   .doc("picks the unmatched predictions with the largest loss")
                   .input("ClsLoss", "[images, predictions]")
                   .input("LocLoss", "[images, predictions]", Arity::kOptional)
                   .input("MatchIndices", "int32 [images, predictions]; target, or -1")
                   .input("MatchDist", "[images, predictions]")
                   .output("NegIndices", "int32 [all, 1], one LoD level; the picked ones")
                   .output("UpdatedMatchIndices",
                           "MatchIndices; hard_example unmatches predictions that are not picked")
                   .attr("neg_pos_ratio", 1.0F, "picked per matched prediction, for max_negative")
                   .range(0)
                   .attr("neg_dist_threshold", 0.5F, "largest MatchDist, for max_negative")
                   .attr("sample_size", 0, "picked in each image, for hard_example")
                   .range(0)
                   .attr("mining_type", "max_negative", "which predictions compete")
                   .one_of({"max_negative", "hard_example"})
                   .infer(infer_mine_hard_examples));
}

}  // namespace millrace::ops
