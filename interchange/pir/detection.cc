// Boxes of detectors.

#include "interchange/pir/rows.h"

namespace millrace::interchange::pir {
namespace {

constexpr Row kDetectionRows[] = {
    {"anchor_generator", "anchor_generator", "Input",
     "anchor_sizes:f32s aspect_ratios:f32s variances:f32s stride:f32s offset:f32",
     "Anchors Variances"},
    {"bipartite_match", "bipartite_match", "DistMat", "match_type:str dist_threshold:f32",
     "ColToRowMatchIndices ColToRowMatchDist"},
    {"box_clip", "box_clip", "Input ImInfo", "", "Output"},
    {"box_coder", "box_coder", "PriorBox PriorBoxVar? TargetBox",
     "code_type:str box_normalized:bool axis:i32 variance:f32s", "OutputBox"},
    {"distribute_fpn_proposals", "distribute_fpn_proposals", "FpnRois RoisNum?",
     "min_level:i32 max_level:i32 refer_level:i32 refer_scale:i32 pixel_offset:bool",
     "MultiFpnRois* MultiLevelRoIsNum*? RestoreIndex"},
    {"generate_proposals_v2", "generate_proposals", "Scores BboxDeltas ImShape Anchors Variances",
     "pre_nms_top_n<pre_nms_topN:i32 post_nms_top_n<post_nms_topN:i32 nms_thresh:f32 min_size:f32 "
     "eta:f32 pixel_offset:bool",
     "RpnRois RpnRoiProbs RpnRoisNum"},
    {"matrix_nms", "matrix_nms", "BBoxes Scores",
     "score_threshold:f32 nms_top_k:i32 keep_top_k:i32 post_threshold:f32 use_gaussian:bool "
     "gaussian_sigma:f32 background_label:i32 normalized:bool",
     "Out Index RoisNum"},
    {"multiclass_nms3", "multiclass_nms3", "BBoxes Scores RoisNum?",
     "score_threshold:f32 nms_top_k:i32 keep_top_k:i32 nms_threshold:f32 normalized:bool "
     "nms_eta:f32 background_label:i32",
     "Out Index NmsRoisNum"},
    {"prior_box", "prior_box", "Input Image",
     "min_sizes:f32s max_sizes:f32s aspect_ratios:f32s variances:f32s flip:bool clip:bool "
     "step_w:f32 step_h:f32 offset:f32 min_max_aspect_ratios_order:bool",
     "Boxes Variances"},
    {"yolo_box", "yolo_box", "X ImgSize",
     "anchors:i32s class_num:i32 conf_thresh:f32 downsample_ratio:i32 clip_bbox:bool scale_x_y:f32 "
     "iou_aware:bool iou_aware_factor:f32",
     "Boxes Scores"},
    {"yolov3_loss", "yolo_loss", "X GTBox GTLabel GTScore?",
     "anchors:i32s anchor_mask:i32s class_num:i32 ignore_thresh:f32 downsample_ratio:i32 "
     "use_label_smooth:bool scale_x_y:f32",
     "Loss ObjectnessMask GTMatchMask"},
};

// The value with the LoD that numbers of rows say.
Value with_lod(OpContext& c, const Value& rows, const Value& counts) {
  const TensorType ints{.dtype = DType::kInt32, .dims = {-1}};
  const Value ends = c.node(
      "cumsum", {counts, c.full(0, DType::kInt32)},
      {of_bool("flatten", false), of_bool("exclusive", false), of_bool("reverse", false)}, ints);
  const Value offsets = c.node(
      "concat",
      {c.list({c.full(0, DType::kInt32, {1}, /*on_host=*/false), ends}), c.full(0, DType::kInt32)},
      {}, ints);
  return c.node("lod_reset", {rows, offsets},
                {of_i32s("target_lod", {0, 1}), of_bool("append", false)}, rows.type());
}

// What the op of the first generation returns where no box is left: one element, -1. Values that
// leave a branch have no LoD, so that it is set afterwards.
Value or_none(OpContext& c, const Value& boxes, const Value& counts) {
  const TensorType scalar{.dtype = DType::kInt64, .dims = {}};
  const Value is_any = c.node(
      "greater_than",
      {c.node("numel", {boxes}, {}, scalar), c.full(0, DType::kInt64, {}, /*on_host=*/false)}, {},
      {.dtype = DType::kBool, .dims = {}});
  c.graph().begin_region({});
  c.graph().add("2.yield", {boxes, counts}, {}, {});
  const std::string some = c.graph().end_region();
  c.graph().begin_region({});
  const Value none = c.full(-1, boxes.type().dtype, {1, 1}, /*on_host=*/false);
  const Value one = c.full(1, DType::kInt32, {1}, /*on_host=*/false);
  c.graph().add("2.yield", {none, one}, {}, {});
  const std::string other = c.graph().end_region();
  TensorType type = boxes.type();
  type.dims = {-1, -1};
  const std::vector<Value> chosen = c.graph().add(
      "1.if", {is_any}, {}, {result_of(type), result_of(counts.type())}, {some, other});
  return with_lod(c, chosen[0], chosen[1]);
}

// The op of the third generation returns numbers of boxes where the others set the LoD.
Status multiclass_nms(OpContext& c) {
  const bool has_index = c.op().type() == "multiclass_nms2";
  const Dims scores = c.dims("Scores");
  if (scores.size() != 3) return c.refuse("boxes whose images are given by their LoD");
  std::vector<Value> results = {result_of(c.out_type("Out")),
                                result_of({.dtype = DType::kInt32, .dims = {-1, 1}}),
                                result_of({.dtype = DType::kInt32, .dims = {-1}})};
  results = c.nodes("multiclass_nms3", {c.in("BBoxes"), c.in("Scores"), Value{}},
                    {of_f32("score_threshold", c.attr<float>("score_threshold")),
                     of_i32("nms_top_k", c.attr<int64_t>("nms_top_k")),
                     of_i32("keep_top_k", c.attr<int64_t>("keep_top_k")),
                     of_f32("nms_threshold", c.attr<float>("nms_threshold")),
                     of_bool("normalized", c.attr<bool>("normalized")),
                     of_f32("nms_eta", c.attr<float>("nms_eta")),
                     of_i32("background_label", c.attr<int64_t>("background_label"))},
                    std::move(results));
  c.set("Out",
        has_index ? with_lod(c, results[0], results[2]) : or_none(c, results[0], results[2]));
  if (has_index) c.set("Index", results[1]);
  return Ok();
}

}  // namespace

void add_detection_ops(Converters& table) {
  for (const Row& row : kDetectionRows) table.rows[row.type] = &row;
  table.functions["multiclass_nms"] = table.functions["multiclass_nms2"] = multiclass_nms;
}

}  // namespace millrace::interchange::pir
