#include "ops/infer_helpers.h"
#include "ops/lod_offsets.h"
#include "ops/registry.h"

namespace millrace::ops {
namespace yolo {
namespace {

Status check_anchors(const InferContext& ctx, size_t found) {
  if (found > 0 && found % 2 == 0) return Ok();
  return ctx.error("attribute 'anchors' must hold pairs of width and height, found {} numbers",
                   found);
}

Status check_channels(const InferContext& ctx, const VarMeta& x, int64_t anchors, int64_t each) {
  if (!x.has_shape || dims_agree(x.dims[1], dims_product({anchors, each}))) return Ok();
  return ctx.error("X must have {} channels, {} for each of {} anchors, found {}",
                   dims_product({anchors, each}), each, anchors, dims_text(x.dims));
}

Status infer_yolo_box(InferContext& ctx) {
  MILLRACE_RETURN_IF_ERROR(check_rank(ctx, "X", 4, 4));
  MILLRACE_RETURN_IF_ERROR(check_rank(ctx, "ImgSize", 2, 2));
  const VarMeta x = ctx.input("X");
  const size_t numbers = ctx.attr<std::vector<int64_t>>("anchors").size();
  MILLRACE_RETURN_IF_ERROR(check_anchors(ctx, numbers));
  const auto anchors = static_cast<int64_t>(numbers / 2);
  const int64_t classes = ctx.attr<int32_t>("class_num");
  const int64_t each = classes + (ctx.attr<bool>("iou_aware") ? 6 : 5);
  MILLRACE_RETURN_IF_ERROR(check_channels(ctx, x, anchors, each));
  const int64_t boxes = x.has_shape ? dims_product({anchors, x.dims[2], x.dims[3]}) : -1;
  const int64_t batch = x.has_shape ? x.dims[0] : -1;
  ctx.set_output("Boxes", x.dtype, {batch, boxes, 4});
  ctx.set_output("Scores", x.dtype, {batch, boxes, classes});
  return Ok();
}

Status infer_yolov3_loss(InferContext& ctx) {
  MILLRACE_RETURN_IF_ERROR(check_rank(ctx, "X", 4, 4));
  MILLRACE_RETURN_IF_ERROR(check_rank(ctx, "GTBox", 3, 3));
  MILLRACE_RETURN_IF_ERROR(check_rank(ctx, "GTLabel", 2, 2));
  MILLRACE_RETURN_IF_ERROR(check_anchors(ctx, ctx.attr<std::vector<int64_t>>("anchors").size()));
  const VarMeta x = ctx.input("X");
  const VarMeta boxes = ctx.input("GTBox");
  const auto masked = static_cast<int64_t>(ctx.attr<std::vector<int64_t>>("anchor_mask").size());
  MILLRACE_RETURN_IF_ERROR(
      check_channels(ctx, x, masked, int64_t{ctx.attr<int32_t>("class_num")} + 5));
  Dims grid = {-1, masked, -1, -1};
  if (x.has_shape) grid = {x.dims[0], masked, x.dims[2], x.dims[3]};
  ctx.set_output("Loss", x.dtype, {grid[0]});
  ctx.set_output("ObjectnessMask", x.dtype, grid);
  ctx.set_output("GTMatchMask", DType::kInt32, {grid[0], boxes.has_shape ? boxes.dims[1] : -1});
  return Ok();
}

}  // namespace
}  // namespace yolo

/// yolo_box, yolov3_loss
void add_detection_yolo(OpRegistry& registry) {
  using namespace yolo;
  registry.add(OpDef("yolo_box")
                   .doc("boxes and class scores from the output of a YOLO v3 head")
                   .input("X", "[batch, anchors * (5 + class_num), height, width]")
                   .input("ImgSize", "int32 [batch, 2]: height, width")
                   .output("Boxes", "[batch, anchors * height * width, 4], in pixels")
                   .output("Scores", "[batch, anchors * height * width, class_num]")
                   .attr("anchors", std::vector<int32_t>{}, "width, height, ... in pixels")
                   .range(0)
                   .attr("class_num", 1, "number of classes")
                   .range(1)
                   .attr("conf_thresh", 0.01F, "boxes below are all zero")
                   .attr("downsample_ratio", 32, "size of the image / size of X")
                   .range(1)
                   .attr("clip_bbox", true, "clip boxes to the image")
                   .attr("scale_x_y", 1.0F, "scales the position of the box centre in its cell")
                   .attr("iou_aware", false, "X also predicts the overlap")
                   .attr("iou_aware_factor", 0.5F, "weight of the predicted overlap")
                   .range(0, 1)
                   .infer(infer_yolo_box));
  registry.add(OpDef("yolov3_loss")
                   .doc("loss of a YOLO v3 head against the boxes in the image")
                   .input("X", "[batch, masked anchors * (5 + class_num), height, width]")
                   .input("GTBox", "[batch, boxes, 4]: centre and size, relative to the image size")
                   .input("GTLabel", "int32 [batch, boxes]")
                   .input("GTScore", "[batch, boxes]; weight of each box", Arity::kOptional)
                   .output("Loss", "[batch]")
                   .intermediate("ObjectnessMask", "[batch, masked anchors, height, width]")
                   .intermediate("GTMatchMask", "int32 [batch, boxes]; anchor, or -1")
                   .attr("anchors", std::vector<int32_t>{}, "width, height, ... in pixels")
                   .range(0)
                   .attr("anchor_mask", std::vector<int32_t>{}, "anchors of this head")
                   .range(0)
                   .attr("class_num", 1, "number of classes")
                   .range(1)
                   .attr("ignore_thresh", 0.7F, "overlap above which an unmatched box adds no loss")
                   .attr("downsample_ratio", 32, "size of the image / size of X")
                   .range(1)
                   .attr("use_label_smooth", true, "smooth the class labels")
                   .attr("scale_x_y", 1.0F, "scales the position of the box centre in its cell")
                   .infer(infer_yolov3_loss)
                   .grad({.type = "yolov3_loss_grad",
                          .inputs = {"X", "GTBox", "GTLabel", "GTScore", "Loss@GRAD",
                                     "ObjectnessMask", "GTMatchMask"},
                          .outputs = {"X@GRAD", "GTBox@GRAD", "GTLabel@GRAD", "GTScore@GRAD"},
                          .infer = infer_grad_without_offsets}));
}

}  // namespace millrace::ops
