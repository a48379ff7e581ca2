#include "ops/infer_helpers.h"
#include "ops/registry.h"

namespace millrace::ops {
namespace nms {
namespace {

// Label, score and the coordinates of each box that is kept.
Status infer(InferContext& ctx) {
  const VarMeta boxes = ctx.input("BBoxes");
  MILLRACE_RETURN_IF_ERROR(check_rank(ctx, "BBoxes", 3, 3));
  MILLRACE_RETURN_IF_ERROR(check_rank(ctx, "Scores", 2, 3));
  int64_t corners = boxes.has_shape ? boxes.dims[2] : -1;
  // Treat an absurd size as unknown, so that the sum below does not overflow.
  if (corners > (int64_t{1} << 31)) corners = -1;
  // LoD says which boxes belong to which image, unless a tensor of counts does.
  const int32_t lod_level = ctx.has_output("RoisNum") || ctx.has_output("NmsRoisNum") ? 0 : 1;
  ctx.set_output("Out", tensor_meta(boxes.dtype, {-1, corners < 0 ? -1 : corners + 2}, lod_level));
  ctx.set_output("Index", tensor_meta(DType::kInt32, {-1, 1}, lod_level));
  ctx.set_output("RoisNum", DType::kInt32, {-1});
  ctx.set_output("NmsRoisNum", DType::kInt32, {-1});
  return Ok();
}

Status infer_retinanet_output(InferContext& ctx) {
  for (const char* const slot : {"BBoxes", "Scores"})
    MILLRACE_RETURN_IF_ERROR(check_rank(ctx, slot, 3, 3));
  const size_t levels = ctx.input_count("Scores");
  if (ctx.input_count("BBoxes") != levels || ctx.input_count("Anchors") != levels) {
    return ctx.error(
        "BBoxes, Scores and Anchors must have the same number of vars, found {}, {} and {}",
        ctx.input_count("BBoxes"), levels, ctx.input_count("Anchors"));
  }
  ctx.set_output("Out", tensor_meta(ctx.input("Scores").dtype, {-1, 6}, 1));
  return Ok();
}

OpDef family(llvm::StringRef type, llvm::StringRef doc) {
  OpDef def(type);
  def.doc(doc)
      .input("BBoxes", "[batch, boxes, 4], or [boxes, classes, 4] with LoD")
      .input("Scores", "[batch, classes, boxes], or [boxes, classes] with LoD")
      .output("Out", "[kept, 6]: class, score, box; one LoD level unless counted")
      .attr("background_label", 0, "class that is left out; -1: none")
      .required_attr<float>("score_threshold", "boxes with lower scores are dropped")
      .required_attr<int32_t>("nms_top_k", "number of best scores to consider; -1: all")
      .range(-1)
      .required_attr<int32_t>("keep_top_k", "maximum number of boxes per image; -1: all")
      .range(-1)
      .attr("normalized", true, "corners are points; false: they are pixels")
      .infer(infer);
  return def;
}

OpDef multiclass(llvm::StringRef type) {
  return family(type, "for each class the boxes with the best scores that overlap little")
      .attr("nms_threshold", 0.3F, "overlap above which the worse box is dropped")
      .range(0)
      .attr("nms_eta", 1.0F, "factor of nms_threshold after each box; 1: none");
}

OpDef locality_aware() {
  OpDef def("locality_aware_nms");
  def.doc("as multiclass_nms, but consecutive boxes that overlap are merged first")
      .input("BBoxes", "[batch, boxes, 4], or of 4, 8, 12 or 16 corners")
      .input("Scores", "[batch, classes, boxes]")
      .output("Out", "[kept, 6]: class, score, box; one LoD level")
      .attr("background_label", -1, "class that is left out; -1: none")
      .required_attr<float>("score_threshold", "boxes with lower scores are dropped")
      .required_attr<int32_t>("nms_top_k", "number of best scores to consider; -1: all")
      .range(-1)
      .attr("nms_threshold", 0.3F,
            "overlap above which boxes are merged, and the worse box is dropped")
      .range(0)
      .attr("nms_eta", 1.0F, "factor of nms_threshold after each box; 1: none")
      .required_attr<int32_t>("keep_top_k", "maximum number of boxes per image; -1: all")
      .range(-1)
      .attr("normalized", true, "corners are points; false: they are pixels")
      .infer(infer);
  return def;
}

OpDef retinanet_output() {
  OpDef def("retinanet_detection_output");
  def.doc("boxes found by a one-stage detector: decoded, best scores only, little overlap")
      .input("BBoxes", "[batch, boxes, 4] for each level; offsets from the anchors", Arity::kMany)
      .input("Scores", "[batch, boxes, classes] for each level", Arity::kMany)
      .input("Anchors", "[boxes, 4] for each level, pixels of the scaled image", Arity::kMany)
      .input("ImInfo", "[batch, 3]: height and width of the scaled image, scale")
      .output("Out", "[kept, 6]: class from 1 on, score, box; one LoD level")
      .required_attr<float>("score_threshold",
                            "boxes with lower scores are dropped, except in the last level")
      .required_attr<int32_t>("nms_top_k", "number of best scores per level to consider; -1: all")
      .range(-1)
      .required_attr<float>("nms_threshold", "overlap above which the worse box is dropped")
      .range(0)
      .required_attr<float>("nms_eta", "factor of nms_threshold after each box; 1: none")
      .required_attr<int32_t>("keep_top_k", "maximum number of boxes per image; -1: all")
      .range(-1)
      .infer(infer_retinanet_output);
  return def;
}

}  // namespace
}  // namespace nms

/// multiclass_nms, multiclass_nms2, multiclass_nms3, matrix_nms, locality_aware_nms,
/// retinanet_detection_output
void add_detection_nms(OpRegistry& registry) {
  using namespace nms;
  registry.add(multiclass("multiclass_nms"));
  registry.add(multiclass("multiclass_nms2")
                   .intermediate("Index", "int32 [kept, 1]; index into the flattened BBoxes"));
  registry.add(
      multiclass("multiclass_nms3")
          .input("RoisNum", "int32 [batch]; replaces LoD", Arity::kOptional)
          .output("Index", "int32 [kept, 1]; index into the flattened BBoxes", Arity::kOptional)
          .output("NmsRoisNum", "int32 [batch], boxes of each image", Arity::kOptional));
  registry.add(locality_aware());
  registry.add(retinanet_output());
  registry.add(
      family("matrix_nms", "boxes with scores lowered by the overlap with better ones")
          .output("Index", "int32 [kept, 1]; index into the flattened BBoxes", Arity::kOptional)
          .output("RoisNum", "int32 [batch], boxes of each image", Arity::kOptional)
          .attr("post_threshold", 0.0F, "boxes whose lowered score is below it are dropped")
          .attr("use_gaussian", false, "lower scores by a Gaussian; false: linearly")
          .attr("gaussian_sigma", 2.0F, "width of the Gaussian"));
}

}  // namespace millrace::ops
