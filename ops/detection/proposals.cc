#include "ops/infer_helpers.h"
#include "ops/registry.h"

namespace millrace::ops {
namespace {

Status set_proposals(InferContext& ctx, int32_t lod_level) {
  MILLRACE_RETURN_IF_ERROR(check_rank(ctx, "Scores", 4, 4));
  MILLRACE_RETURN_IF_ERROR(check_rank(ctx, "BboxDeltas", 4, 4));
  const DType dtype = ctx.input("Anchors").dtype;
  ctx.set_output("RpnRois", tensor_meta(dtype, {-1, 4}, lod_level));
  ctx.set_output("RpnRoiProbs", tensor_meta(ctx.input("Scores").dtype, {-1, 1}, lod_level));
  ctx.set_output("RpnRoisNum", DType::kInt32, {-1});
  return Ok();
}

Status infer_generate(InferContext& ctx) {
  return set_proposals(ctx, 1);
}

// The second version counts the boxes of each image in RpnRoisNum only.
Status infer_generate_v2(InferContext& ctx) {
  return set_proposals(ctx, 0);
}

Status infer_collect(InferContext& ctx) {
  ctx.set_output("FpnRois", tensor_meta(ctx.input("MultiLevelRois").dtype, {-1, 4}, 1));
  ctx.set_output("RoisNum", DType::kInt32, {-1});
  return Ok();
}

Status infer_distribute(InferContext& ctx) {
  MILLRACE_RETURN_IF_ERROR(check_rank(ctx, "FpnRois", 2, 2));
  const VarMeta rois = ctx.input("FpnRois");
  const int64_t first = ctx.attr<int32_t>("min_level");
  const int64_t last = ctx.attr<int32_t>("max_level");
  const auto outputs = static_cast<int64_t>(ctx.output_count("MultiFpnRois"));
  if (last - first + 1 != outputs) {
    return ctx.error("MultiFpnRois must have a var for each level from {} to {}, found {}", first,
                     last, outputs);
  }
  for (size_t i = 0; i < static_cast<size_t>(outputs); ++i) {
    ctx.set_output("MultiFpnRois", tensor_meta(rois.dtype, {-1, 4}, 1), i);
    ctx.set_output("MultiLevelRoIsNum", tensor_meta(DType::kInt32, {-1}), i);
  }
  ctx.set_output("RestoreIndex", DType::kInt32, {rois.has_shape ? rois.dims[0] : -1, 1});
  return Ok();
}

OpDef generate_family(llvm::StringRef type, llvm::StringRef image_slot, llvm::StringRef image_doc) {
  OpDef def(type);
  def.doc("boxes with the best scores, decoded, clipped, and without those that overlap much")
      .input("Scores", "[batch, anchors, height, width]")
      .input("BboxDeltas", "[batch, 4 * anchors, height, width]")
      .input(image_slot, image_doc)
      .input("Anchors", "[height, width, anchors, 4]")
      .input("Variances", "shape of Anchors")
      .output("RpnRois", "[boxes, 4]")
      .output("RpnRoiProbs", "[boxes, 1]")
      .output("RpnRoisNum", "int32 [batch], boxes of each image", Arity::kOptional)
      .required_attr<int32_t>("pre_nms_topN", "number of best scores to consider; 0 or less: all")
      .required_attr<int32_t>("post_nms_topN", "maximum number of boxes per image; 0 or less: all")
      .required_attr<float>("nms_thresh", "overlap above which the worse box is dropped")
      .range(0)
      .required_attr<float>("min_size", "smaller boxes are dropped, in pixels")
      .required_attr<float>("eta", "factor of nms_thresh after each box; 1: none")
      .range(0, 1);
  return def;
}

}  // namespace

/// generate_proposals, generate_proposals_v2, collect_fpn_proposals, distribute_fpn_proposals
void add_detection_proposals(OpRegistry& registry) {
  registry.add(generate_family("generate_proposals", "ImInfo", "[batch, 3]: height, width, scale")
                   .infer(infer_generate));
  registry.add(generate_family("generate_proposals_v2", "ImShape", "[batch, 2]: height, width")
                   .attr("pixel_offset", true, "corners are pixels, not points")
                   .infer(infer_generate_v2));
  registry.add(OpDef("collect_fpn_proposals")
                   .doc("the boxes with the best scores of all levels")
                   .input("MultiLevelRois", "[boxes, 4] for each level", Arity::kMany)
                   .input("MultiLevelScores", "[boxes, 1] for each level", Arity::kMany)
                   .input("MultiLevelRoIsNum", "[batch] for each level; replaces LoD", Arity::kAny)
                   .output("FpnRois", "[boxes, 4], one LoD level")
                   .output("RoisNum", "int32 [batch], boxes of each image", Arity::kOptional)
                   .required_attr<int32_t>("post_nms_topN", "maximum number of boxes")
                   .range(1)
                   .infer(infer_collect));
  registry.add(
      OpDef("distribute_fpn_proposals")
          .doc("boxes sorted into levels by their size")
          .input("FpnRois", "[boxes, 4]")
          .input("RoisNum", "int32 [batch]; replaces LoD", Arity::kOptional)
          .output("MultiFpnRois", "[boxes, 4] for each level", Arity::kMany)
          .output("RestoreIndex", "int32 [boxes, 1]; index of each box in the concatenated levels")
          .output("MultiLevelRoIsNum", "int32 [batch] for each level", Arity::kAny)
          .required_attr<int32_t>("min_level", "first level")
          .required_attr<int32_t>("max_level", "last level")
          .required_attr<int32_t>("refer_level", "level of boxes of size refer_scale")
          .required_attr<int32_t>("refer_scale", "square root of the area, in pixels")
          .range(1)
          .attr("pixel_offset", true, "corners are pixels, not points")
          .infer(infer_distribute));
}

}  // namespace millrace::ops
