#include "ops/infer_helpers.h"
#include "ops/registry.h"

namespace millrace::ops {
namespace mean_iou {
namespace {

Status infer(InferContext& ctx) {
  MILLRACE_RETURN_IF_ERROR(check_same_count(ctx, "Predictions", "Labels"));
  const int64_t classes = ctx.attr<int32_t>("num_classes");
  ctx.set_output("OutMeanIou", DType::kFloat32, {1});
  ctx.set_output("OutWrong", DType::kInt32, {classes});
  ctx.set_output("OutCorrect", DType::kInt32, {classes});
  return Ok();
}

}  // namespace
}  // namespace mean_iou

void add_metric_mean_iou(OpRegistry& registry) {
  registry.add(
      OpDef("mean_iou")
          .doc("by class correct / (correct + wrong), averaged over the classes that occur")
          .input("Predictions", "predicted classes")
          .input("Labels", "correct classes, shape of Predictions")
          .input("InWrongs", "counts to start from", Arity::kAny)
          .input("InCorrects", "counts to start from", Arity::kAny)
          .input("InMeanIou", "values to add", Arity::kAny)
          .output("OutMeanIou", "f32 [1]")
          .output("OutWrong", "misses by class; a miss counts for both classes")
          .output("OutCorrect", "hits by class")
          .required_attr<int32_t>("num_classes", "number of classes")
          .range(1)
          .infer(mean_iou::infer)
          .flops(elementwise_flops));
}

}  // namespace millrace::ops
