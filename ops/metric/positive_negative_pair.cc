#include "ops/infer_helpers.h"
#include "ops/registry.h"

namespace millrace::ops {
namespace {

Status infer_pairs(InferContext& ctx) {
  MILLRACE_RETURN_IF_ERROR(check_rank(ctx, "Score", 2, 2));
  MILLRACE_RETURN_IF_ERROR(check_same_count(ctx, "Label", "QueryID"));
  if (ctx.has_input("Weight")) MILLRACE_RETURN_IF_ERROR(check_same_count(ctx, "Label", "Weight"));
  const size_t given = ctx.input_count("AccumulatePositivePair") +
                       ctx.input_count("AccumulateNegativePair") +
                       ctx.input_count("AccumulateNeutralPair");
  if (given != 0 && given != 3)
    return ctx.error("only {} of the three Accumulate inputs are given", given);
  const DType dtype = ctx.input("Score").dtype;
  for (const char* const slot : {"PositivePair", "NegativePair", "NeutralPair"})
    ctx.set_output(slot, dtype, {1});
  return Ok();
}

}  // namespace

void add_metric_positive_negative_pair(OpRegistry& registry) {
  registry.add(
      OpDef("positive_negative_pair")
          .doc("counts of item pairs of a query that scores and labels order alike, oppositely, or "
               "neither way")
          .input("Score", "[items, width]")
          .input("Label", "the correct order [items, 1]")
          .input("QueryID", "int64 [items, 1]")
          .input("AccumulatePositivePair", "sum to start from", Arity::kOptional)
          .input("AccumulateNegativePair", "sum to start from", Arity::kOptional)
          .input("AccumulateNeutralPair", "sum to start from", Arity::kOptional)
          .input("Weight", "of each item; a pair weighs the mean of both", Arity::kOptional)
          .output("PositivePair", "ordered alike")
          .output("NegativePair", "ordered oppositely, including pairs of equal scores")
          .output("NeutralPair", "of equal scores", Arity::kOptional)
          .attr("column", -1, "column of Score that orders")
          .infer(infer_pairs)
          .flops(elementwise_flops));
}

}  // namespace millrace::ops
