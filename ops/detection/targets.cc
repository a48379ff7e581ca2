#include "ops/infer_helpers.h"
#include "ops/registry.h"

// Training targets of detectors. The boxes of all images of a batch are concatenated; LoD assigns
// them to images.
namespace millrace::ops {
namespace {

Status check_columns(const InferContext& ctx, llvm::StringRef slot, int64_t columns) {
  MILLRACE_RETURN_IF_ERROR(check_rank(ctx, slot, 2, 2));
  const VarMeta& meta = ctx.input(slot);
  if (!meta.has_shape || dims_agree(meta.dims[1], columns)) return Ok();
  return ctx.error("{} must be [rows, {}], found {}", std::string_view(slot.data(), slot.size()),
                   columns, dims_text(meta.dims));
}

Status infer_anchor_targets(InferContext& ctx) {
  MILLRACE_RETURN_IF_ERROR(check_columns(ctx, "Anchor", 4));
  MILLRACE_RETURN_IF_ERROR(check_columns(ctx, "GtBoxes", 4));
  MILLRACE_RETURN_IF_ERROR(check_columns(ctx, "ImInfo", 3));
  const DType dtype = ctx.input("Anchor").dtype;
  ctx.set_output("LocationIndex", tensor_meta(DType::kInt32, {-1}, 1));
  ctx.set_output("ScoreIndex", tensor_meta(DType::kInt32, {-1}, 1));
  ctx.set_output("TargetBBox", tensor_meta(dtype, {-1, 4}, 1));
  ctx.set_output("TargetLabel", tensor_meta(DType::kInt32, {-1, 1}, 1));
  ctx.set_output("BBoxInsideWeight", tensor_meta(dtype, {-1, 4}, 1));
  ctx.set_output("ForegroundNumber", tensor_meta(DType::kInt32, {-1, 1}, 1));
  return Ok();
}

OpDef anchor_targets(llvm::StringRef type, llvm::StringRef doc) {
  OpDef def(type);
  def.doc(doc)
      .input("Anchor", "[anchors, 4], pixels of the scaled image")
      .input("GtBoxes", "[objects, 4], pixels of the image itself; one LoD level")
      .input("IsCrowd", "[objects]; objects with a value other than 0 are ignored")
      .input("ImInfo", "[batch, 3]: height and width of the scaled image, scale")
      .output("LocationIndex", "int32 [f]; anchors with a box, counted over the batch")
      .output("ScoreIndex", "int32 [f + b]; anchors of the foreground, then of the background")
      .output("TargetBBox", "[f, 4]; from the anchor to its box")
      .output("TargetLabel", "int32 [f + b, 1]; classes of ScoreIndex, 0 for the background")
      .output("BBoxInsideWeight", "[f, 4]; 0 for an anchor that is only a filler", Arity::kOptional)
      .infer(infer_anchor_targets);
  return def;
}

Status infer_proposal_labels(InferContext& ctx) {
  MILLRACE_RETURN_IF_ERROR(check_columns(ctx, "RpnRois", 4));
  MILLRACE_RETURN_IF_ERROR(check_columns(ctx, "GtBoxes", 4));
  MILLRACE_RETURN_IF_ERROR(check_columns(ctx, "ImInfo", 3));
  const DType dtype = ctx.input("RpnRois").dtype;
  const int64_t classes = ctx.attr<int32_t>("class_nums");
  ctx.set_output("Rois", tensor_meta(dtype, {-1, 4}, 1));
  ctx.set_output("LabelsInt32", tensor_meta(DType::kInt32, {-1, 1}, 1));
  for (const char* const slot : {"BboxTargets", "BboxInsideWeights", "BboxOutsideWeights"})
    ctx.set_output(slot, tensor_meta(dtype, {-1, 4 * classes}, 1));
  ctx.set_output("MaxOverlapWithGT", tensor_meta(dtype, {-1}, 1));
  return Ok();
}

OpDef proposal_labels() {
  OpDef def("generate_proposal_labels");
  def.doc("regions for training the second stage of a detector, and their targets")
      .input("RpnRois", "[regions, 4], pixels of the scaled image; one LoD level")
      .input("GtClasses", "[objects], at least 1")
      .input("IsCrowd", "[objects]; objects with a value other than 0 are not used as regions")
      .input("GtBoxes", "[objects, 4], pixels of the image itself; one LoD level")
      .input("ImInfo", "[batch, 3]: height and width of the scaled image, scale")
      .input("MaxOverlap", "[regions]; with is_cascade_rcnn: regions of 1 are left out",
             Arity::kOptional)
      .output("Rois", "[n, 4], foreground, then background of each image")
      .output("LabelsInt32", "int32 [n, 1]; classes, 0 for the background")
      .output("BboxTargets", "[n, 4 * class_nums]; from the region to its box, by class")
      .output("BboxInsideWeights", "[n, 4 * class_nums]; 1 where there is a target")
      .output("BboxOutsideWeights", "[n, 4 * class_nums]; the same")
      .output("MaxOverlapWithGT", "[n]", Arity::kOptional)
      .required_attr<int32_t>("batch_size_per_im", "maximum number of regions per image")
      .range(0)
      .required_attr<float>("fg_fraction", "maximum share of foreground among them")
      .required_attr<float>("fg_thresh", "minimum overlap of a foreground region")
      .required_attr<float>("bg_thresh_hi", "overlap below which a region or anchor is background")
      .required_attr<float>("bg_thresh_lo", "minimum overlap of a background region")
      .required_attr<std::vector<float>>("bbox_reg_weights", "divisors of the four targets")
      .required_attr<int32_t>("class_nums", "classes with the background")
      .range(1, 1 << 20)
      .attr("use_random", true,
            "choose surplus regions or anchors at random; false: take the first ones")
      .attr("is_cascade_rcnn", false, "regions come from the previous stage; all are used")
      .attr("is_cls_agnostic", false, "targets are stored at class 1")
      .infer(infer_proposal_labels);
  return def;
}

Status infer_mask_labels(InferContext& ctx) {
  MILLRACE_RETURN_IF_ERROR(check_columns(ctx, "Rois", 4));
  MILLRACE_RETURN_IF_ERROR(check_columns(ctx, "GtSegms", 2));
  MILLRACE_RETURN_IF_ERROR(check_columns(ctx, "ImInfo", 3));
  const auto side = static_cast<int64_t>(ctx.attr<int32_t>("resolution"));
  const auto classes = static_cast<int64_t>(ctx.attr<int32_t>("num_classes"));
  ctx.set_output("MaskRois", tensor_meta(ctx.input("Rois").dtype, {-1, 4}, 1));
  ctx.set_output("RoiHasMaskInt32", tensor_meta(DType::kInt32, {-1, 1}, 1));
  ctx.set_output("MaskInt32",
                 tensor_meta(DType::kInt32, {-1, dims_product({classes, side, side})}, 1));
  return Ok();
}

OpDef mask_labels() {
  OpDef def("generate_mask_labels");
  def.doc("regions with an object, and which of their pixels belong to it")
      .input("ImInfo", "[batch, 3]: height and width of the scaled image, scale")
      .input("GtClasses", "[objects]; one LoD level")
      .input("IsCrowd", "[objects]; objects with a value other than 0 have no outline")
      .input("GtSegms", "[points, 2]; LoD of images, objects, polygons")
      .input("Rois", "[regions, 4], pixels of the scaled image; one LoD level")
      .input("LabelsInt32", "[regions]; classes")
      .output("MaskRois", "[n, 4]; regions with a class above 0, or one of the background")
      .output("RoiHasMaskInt32", "int32 [n, 1]; index of each region in its image")
      .output("MaskInt32", "int32 [n, num_classes * resolution^2]; -1 for other classes")
      .required_attr<int32_t>("num_classes", "classes with the background")
      .range(1, 1 << 20)
      .required_attr<int32_t>("resolution", "pixels of a mask along each side")
      .range(1, 1 << 14)
      .infer(infer_mask_labels);
  return def;
}

}  // namespace

/// rpn_target_assign, retinanet_target_assign, generate_proposal_labels, generate_mask_labels
void add_detection_targets(OpRegistry& registry) {
  registry.add(
      anchor_targets("rpn_target_assign", "anchors for training the first stage of a detector")
          .attr("rpn_batch_size_per_im", 256, "anchors of an image; 0 or less: all")
          .required_attr<float>("rpn_straddle_thresh",
                                "pixels by which an anchor may exceed the image; below 0: no limit")
          .attr("rpn_positive_overlap", 0.7F, "overlap from which an anchor is foreground")
          .attr("rpn_negative_overlap", 0.3F,
                "overlap below which a region or anchor is background")
          .attr("rpn_fg_fraction", 0.25F, "maximum share of foreground; 0 or less: take all")
          .attr("use_random", true,
                "choose surplus regions or anchors at random; false: take the first ones"));
  registry.add(
      anchor_targets("retinanet_target_assign",
                     "anchors for training a one-stage detector, without sampling")
          .input("GtLabels", "[objects]; classes")
          .output("ForegroundNumber", "int32 [batch, 1]; anchors with a box and 1 more")
          .attr("positive_overlap", 0.5F, "overlap from which an anchor is foreground")
          .attr("negative_overlap", 0.4F, "overlap below which a region or anchor is background"));
  registry.add(proposal_labels());
  registry.add(mask_labels());
}

}  // namespace millrace::ops
