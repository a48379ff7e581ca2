#include "ops/infer_helpers.h"
#include "ops/lod_offsets.h"
#include "ops/registry.h"

namespace millrace::ops {
namespace {

Status infer_iou_similarity(InferContext& ctx) {
  MILLRACE_RETURN_IF_ERROR(check_rank(ctx, "X", 2, 2));
  MILLRACE_RETURN_IF_ERROR(check_rank(ctx, "Y", 2, 2));
  const VarMeta x = ctx.input("X");
  const VarMeta y = ctx.input("Y");
  const Dims dims = {x.has_shape ? x.dims[0] : -1, y.has_shape ? y.dims[0] : -1};
  ctx.set_output("Out", tensor_with_lod_of(x, x.dtype, dims));
  return Ok();
}

// [targets, 4] encoded against every prior is [targets, priors, 4]; decoding keeps the shape.
Status infer_box_coder(InferContext& ctx) {
  MILLRACE_RETURN_IF_ERROR(check_rank(ctx, "PriorBox", 2, 2));
  const VarMeta prior = ctx.input("PriorBox");
  const VarMeta target = ctx.input("TargetBox");
  const bool encode = llvm::StringRef(ctx.attr<std::string>("code_type")).startswith("encode");
  if (encode) {
    MILLRACE_RETURN_IF_ERROR(check_rank(ctx, "TargetBox", 2, 2));
    const Dims dims = {target.has_shape ? target.dims[0] : -1, prior.has_shape ? prior.dims[0] : -1,
                       4};
    VarMeta out = tensor_with_lod_of(target, target.dtype, dims);
    ctx.set_output("OutputBox", std::move(out));
    return Ok();
  }
  MILLRACE_RETURN_IF_ERROR(check_rank(ctx, "TargetBox", 3, 3));
  const auto axis = ctx.attr<int64_t>("axis");
  // The prior boxes are along dim 1 - axis of TargetBox.
  const auto across = static_cast<size_t>(axis == 0 ? 1 : 0);
  if (prior.has_shape && target.has_shape && !dims_agree(target.dims[across], prior.dims[0])) {
    return ctx.error("dim {} of TargetBox {} must be the number of boxes of PriorBox {}", across,
                     dims_text(target.dims), dims_text(prior.dims));
  }
  VarMeta out = target;
  if (axis == 1) {
    out.lod_level = prior.lod_level;
    out.lod = prior.lod;
  }
  ctx.set_output("OutputBox", std::move(out));
  return Ok();
}

Status infer_input_to_output(InferContext& ctx) {
  ctx.copy("Input", "Output");
  return Ok();
}

Status infer_polygon(InferContext& ctx) {
  MILLRACE_RETURN_IF_ERROR(check_rank(ctx, "Input", 4, 4));
  const VarMeta& input = ctx.input("Input");
  if (input.has_shape && input.dims[1] >= 0 && input.dims[1] % 2 != 0) {
    return ctx.error("Input must have an even number of channels, found {}", dims_text(input.dims));
  }
  ctx.set_output("Output", without_offsets(input));
  return Ok();
}

Status infer_box_decoder(InferContext& ctx) {
  MILLRACE_RETURN_IF_ERROR(check_rank(ctx, "PriorBox", 2, 2));
  MILLRACE_RETURN_IF_ERROR(check_rank(ctx, "TargetBox", 2, 2));
  MILLRACE_RETURN_IF_ERROR(check_rank(ctx, "BoxScore", 2, 2));
  const VarMeta& target = ctx.input("TargetBox");
  const VarMeta& score = ctx.input("BoxScore");
  if (target.has_shape && score.has_shape && score.dims[1] >= 0 &&
      !dims_agree(target.dims[1], dims_product({4, score.dims[1]}))) {
    return ctx.error("TargetBox {} must have 4 columns for each class of BoxScore {}",
                     dims_text(target.dims), dims_text(score.dims));
  }
  ctx.copy("TargetBox", "DecodeBox");
  ctx.copy("PriorBox", "OutputAssignBox");
  return Ok();
}

}  // namespace

/// iou_similarity, box_coder, box_clip, polygon_box_transform, box_decoder_and_assign
void add_detection_boxes(OpRegistry& registry) {
  registry.add(OpDef("iou_similarity")
                   .doc("area of the intersection of two boxes / area of their union")
                   .input("X", "[boxes, 4]")
                   .input("Y", "[boxes, 4]")
                   .output("Out", "[boxes of X, boxes of Y], LoD of X")
                   .attr("box_normalized", true, "corners are points; false: they are pixels")
                   .infer(infer_iou_similarity));
  registry.add(OpDef("box_coder")
                   .doc("boxes as offsets and scales relative to prior boxes, or back")
                   .input("PriorBox", "[priors, 4]")
                   .input("PriorBoxVar", "shape of PriorBox; divides or scales", Arity::kOptional)
                   .input("TargetBox", "[targets, 4] to encode, rank 3 to decode")
                   .output("OutputBox", "[targets, priors, 4], or shape of TargetBox")
                   .attr("code_type", "encode_center_size")
                   .one_of({"encode_center_size", "decode_center_size"})
                   .attr("box_normalized", true, "corners are points; false: they are pixels")
                   .attr("axis", 0, "dim of TargetBox along which PriorBox is repeated")
                   .range(0, 1)
                   .attr("variance", std::vector<float>{}, "used instead of PriorBoxVar; 4 entries")
                   .infer(infer_box_coder));
  registry.add(OpDef("box_clip")
                   .doc("boxes clipped to their image")
                   .input("Input", "boxes in the last dim of 4")
                   .input("ImInfo", "[images, 3]: height, width, scale")
                   .output("Output", "shape, dtype and LoD of Input")
                   .infer(infer_input_to_output)
                   .inplace("Input", "Output"));
  registry.add(OpDef("polygon_box_transform")
                   .doc("offsets of corners relative to each pixel as positions in the image")
                   .input("Input", "[batch, 2 * corners, height, width]")
                   .output("Output", "shape and dtype of Input")
                   .infer(infer_polygon));
  registry.add(
      OpDef("box_decoder_and_assign")
          .doc("decoded boxes of all classes, and for each region the box of its best class")
          .input("PriorBox", "[regions, 4], pixels")
          .input("PriorBoxVar", "[4]; factors of the offsets", Arity::kOptional)
          .input("TargetBox", "[regions, 4 * classes]; offsets of each class")
          .input("BoxScore", "[regions, classes]; class 0 is the background")
          .output("DecodeBox", "[regions, 4 * classes]")
          .output("OutputAssignBox", "[regions, 4]; PriorBox where no class scores")
          .attr("box_clip", 4.135F, "logarithm of the largest scale factor of a size")
          .infer(infer_box_decoder));
}

}  // namespace millrace::ops
