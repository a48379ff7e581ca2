#include "ops/infer_helpers.h"
#include "ops/registry.h"

namespace millrace::ops {
namespace precision_recall {
namespace {

// Macro and micro averages of precision, recall and F1.
constexpr int64_t kMetrics = 6;
// True positives, false positives, true negatives, false negatives.
constexpr int64_t kStates = 4;

Status infer(InferContext& ctx) {
  const int64_t classes = ctx.attr<int32_t>("class_number");
  for (const char* const slot : {"Indices", "Labels", "Weights"}) {
    if (ctx.has_input(slot)) MILLRACE_RETURN_IF_ERROR(check_same_count(ctx, "MaxProbs", slot));
  }
  if (ctx.has_input("StatesInfo"))
    MILLRACE_RETURN_IF_ERROR(check_elements(ctx, "StatesInfo", classes * kStates));
  ctx.set_output("BatchMetrics", DType::kFloat64, {kMetrics});
  ctx.set_output("AccumMetrics", DType::kFloat64, {kMetrics});
  ctx.set_output("AccumStatesInfo", DType::kFloat32, {classes, kStates});
  return Ok();
}

}  // namespace
}  // namespace precision_recall

void add_metric_precision_recall(OpRegistry& registry) {
  registry.add(OpDef("precision_recall")
                   .doc("precision, recall and F1 of a batch and of all batches so far")
                   .input("MaxProbs", "scores of the predicted classes [n, 1]")
                   .input("Indices", "predicted classes [n, 1]")
                   .input("Labels", "correct classes [n, 1]")
                   .input("Weights", "weights of the rows [n, 1]", Arity::kOptional)
                   .input("StatesInfo", "counts so far [classes, 4]", Arity::kOptional)
                   .output("BatchMetrics", "macro and micro averages of the batch, 6 values")
                   .output("AccumMetrics", "the same over all batches")
                   .output("AccumStatesInfo", "counts with the batch [classes, 4]")
                   .required_attr<int32_t>("class_number", "number of classes")
                   .range(1)
                   .infer(precision_recall::infer)
                   .flops(elementwise_flops));
}

}  // namespace millrace::ops
