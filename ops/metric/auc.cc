#include <string>

#include "ops/infer_helpers.h"
#include "ops/lod_offsets.h"
#include "ops/registry.h"

namespace millrace::ops {
namespace auc {
namespace {

Status infer(InferContext& ctx) {
  MILLRACE_RETURN_IF_ERROR(check_rank(ctx, "Predict", 1, 2));
  const VarMeta& predict = ctx.input("Predict");
  const VarMeta& label = ctx.input("Label");
  if (dims_known(predict) && dims_known(label) && !label.dims.empty() &&
      !dims_agree(predict.dims[0], label.dims[0])) {
    return ctx.error("Predict and Label must have the same number of rows, found {} and {}",
                     dims_text(predict.dims), dims_text(label.dims));
  }
  ctx.set_output("AUC", DType::kFloat64, {});
  // [1, buckets], or slide_steps + 1 rows of buckets and a step counter, regardless of the dims
  const int64_t buckets = ctx.attr<int32_t>("num_thresholds") + 1;
  const int64_t steps = ctx.attr<int32_t>("slide_steps");
  const Dims dims = steps == 0 ? Dims{1, buckets} : Dims{(steps + 1) * buckets + 1};
  for (const char* const slot : {"StatPos", "StatNeg"}) {
    MILLRACE_RETURN_IF_ERROR(check_elements(ctx, slot, dims_product(dims)));
    ctx.set_output(std::string(slot) + "Out",
                   with_offsets_of(tensor_meta(DType::kInt64, dims), ctx.input(slot)));
  }
  return Ok();
}

}  // namespace
}  // namespace auc

void add_metric_auc(OpRegistry& registry) {
  registry.add(
      OpDef("auc")
          .doc("area under the curve, from counts by score that are kept over steps")
          .input("Predict", "probabilities [n, 2] or [n, 1]; the last column is the positive class")
          .input("Label", "0 or 1 [n, 1]")
          .input("StatPos", "positives by score bucket, int64")
          .input("StatNeg", "negatives by score bucket, int64")
          .input("InsTagWeight", "weight 0 ignores a row", Arity::kOptional)
          .output("AUC", "f64, rank 0; fluid 1.x declares [1]")
          .output("StatPosOut", "the counts after the step, the same var")
          .output("StatNegOut", "the counts after the step, the same var")
          .attr("curve", "ROC", "which curve")
          .one_of({"ROC", "PR"})
          .attr("num_thresholds", (1 << 12) * 2 - 1, "number of buckets, less 1")
          .range(1)
          .attr("slide_steps", 1, "number of most recent steps to use; 0: all")
          .range(0)
          .infer(auc::infer)
          .flops(elementwise_flops)
          .inplace("StatPos", "StatPosOut")
          .inplace("StatNeg", "StatNegOut"));
}

}  // namespace millrace::ops
