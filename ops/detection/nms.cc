#include "ops/detection/defs.h"
#include "ops/infer_helpers.h"

namespace millrace::ops {
namespace {

// Label, score and the coordinates of each box that is kept.
Status infer_nms(InferContext& ctx) {
  const VarMeta boxes = ctx.input("BBoxes");
  MILLRACE_RETURN_IF_ERROR(check_rank(ctx, "BBoxes", 3, 3));
  MILLRACE_RETURN_IF_ERROR(check_rank(ctx, "Scores", 2, 3));
  int64_t corners = boxes.has_shape ? boxes.dims[2] : -1;
  // No box has that many; the sum below must not overflow.
  if (corners > (int64_t{1} << 31)) corners = -1;
  // LoD says which boxes belong to which image, unless a tensor of counts does.
  const int32_t lod_level = ctx.has_output("RoisNum") || ctx.has_output("NmsRoisNum") ? 0 : 1;
  ctx.set_output("Out", tensor_meta(boxes.dtype, {-1, corners < 0 ? -1 : corners + 2}, lod_level));
  ctx.set_output("Index", tensor_meta(DType::kInt32, {-1, 1}, lod_level));
  ctx.set_output("RoisNum", DType::kInt32, {-1});
  ctx.set_output("NmsRoisNum", DType::kInt32, {-1});
  return Ok();
}

OpDef family_nms(llvm::StringRef type, llvm::StringRef doc) {
  OpDef def(type);
  def.doc(doc)
      .input("BBoxes", "[batch, boxes, 4], or [boxes, classes, 4] with LoD")
      .input("Scores", "[batch, classes, boxes], or [boxes, classes] with LoD")
      .output("Out", "[kept, 6]: class, score, box; one LoD level unless counted")
      .attr("background_label", 0, "class that is left out; -1: none")
      .required_attr<float>("score_threshold", "boxes below go")
      .required_attr<int32_t>("nms_top_k", "best scores that go on; -1: all")
      .range(-1)
      .required_attr<int32_t>("keep_top_k", "boxes of an image at most; -1: all")
      .range(-1)
      .attr("normalized", true, "corners are points; false: pixels")
      .infer(infer_nms);
  return def;
}

OpDef multiclass(llvm::StringRef type) {
  return family_nms(type, "of each class the boxes with the best scores that overlap little")
      .attr("nms_threshold", 0.3F, "overlap at which the worse box goes")
      .range(0)
      .attr("nms_eta", 1.0F, "factor of nms_threshold after each box; 1: none");
}

}  // namespace

void add_nms_ops(OpRegistry& registry) {
  registry.add(multiclass("multiclass_nms"));
  registry.add(multiclass("multiclass_nms2")
                   .intermediate("Index", "int32 [kept, 1]; place in the flat BBoxes"));
  registry.add(multiclass("multiclass_nms3")
                   .input("RoisNum", "int32 [batch]; replaces LoD", Arity::kOptional)
                   .output("Index", "int32 [kept, 1]; place in the flat BBoxes", Arity::kOptional)
                   .output("NmsRoisNum", "int32 [batch], boxes of each image", Arity::kOptional));
  registry.add(family_nms("matrix_nms", "boxes with scores lowered by the overlap with better ones")
                   .output("Index", "int32 [kept, 1]; place in the flat BBoxes", Arity::kOptional)
                   .output("RoisNum", "int32 [batch], boxes of each image", Arity::kOptional)
                   .attr("post_threshold", 0.0F, "lowered scores below go")
                   .attr("use_gaussian", false, "scores fall off as a bell curve, else linearly")
                   .attr("gaussian_sigma", 2.0F, "width of the bell curve"));
}

}  // namespace millrace::ops
