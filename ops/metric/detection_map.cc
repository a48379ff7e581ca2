#include "ops/infer_helpers.h"
#include "ops/registry.h"

namespace millrace::ops {
namespace detection_map {
namespace {

Status check_width(const InferContext& ctx, llvm::StringRef slot, int64_t least, int64_t most) {
  MILLRACE_RETURN_IF_ERROR(check_rank(ctx, slot, 2, 2));
  const VarMeta& meta = ctx.input(slot);
  if (!meta.has_shape || meta.dims[1] < 0 || (meta.dims[1] >= least && meta.dims[1] <= most))
    return Ok();
  return ctx.error("{} must have {} columns, found {}", std::string_view(slot.data(), slot.size()),
                   least == most ? "6" : "5 or 6", dims_text(meta.dims));
}

Status infer(InferContext& ctx) {
  MILLRACE_RETURN_IF_ERROR(check_width(ctx, "DetectRes", 6, 6));
  MILLRACE_RETURN_IF_ERROR(check_width(ctx, "Label", 5, 6));
  if (ctx.has_input("PosCount") && !(ctx.has_input("TruePos") && ctx.has_input("FalsePos")))
    return ctx.error("PosCount, TruePos and FalsePos must be given together");
  const DType dtype = ctx.input("DetectRes").dtype;
  const int64_t classes = ctx.attr<int32_t>("class_num");
  ctx.set_output("AccumPosCount", DType::kInt32, {classes, 1});
  ctx.set_output("AccumTruePos", tensor_meta(dtype, {-1, 2}, 1));
  ctx.set_output("AccumFalsePos", tensor_meta(dtype, {-1, 2}, 1));
  ctx.set_output("MAP", dtype, {1});
  return Ok();
}

}  // namespace
}  // namespace detection_map

void add_metric_detection_map(OpRegistry& registry) {
  registry.add(
      OpDef("detection_map")
          .doc("mean average precision of detected boxes, over this batch and those counted before")
          .input("DetectRes", "[boxes, 6]: class, score, corners between 0 and 1; one LoD level")
          .input("Label", "[objects, 5 or 6]: class, whether it is difficult (of 6), corners; LoD")
          .input("HasState", "int32 [1]; 0: restart the counts", Arity::kOptional)
          .input("PosCount", "int32 [classes, 1]; objects so far", Arity::kOptional)
          .input("TruePos", "[n, 2]: score, 1 for a hit; LoD of classes", Arity::kOptional)
          .input("FalsePos", "[n, 2]: score, 1 for a miss; LoD of classes", Arity::kOptional)
          .output("AccumPosCount", "PosCount with this batch")
          .output("AccumTruePos", "TruePos with this batch")
          .output("AccumFalsePos", "FalsePos with this batch")
          .output("MAP", "[1]")
          .required_attr<int32_t>("class_num", "number of classes")
          .range(1, 1 << 20)
          .attr("background_label", 0, "classes with that many objects are ignored")
          .attr("overlap_threshold", 0.5F, "overlap above which a box is found")
          .attr("evaluate_difficult", true, "include difficult objects")
          .attr("ap_type", "integral", "area below the curve, or its mean at eleven points")
          .one_of({"integral", "11point"})
          .infer(detection_map::infer));
}

}  // namespace millrace::ops
