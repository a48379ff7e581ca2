// yolo_box: boxes and scores from the output of a YOLO v3 head.

#include "interchange/onnx/op_context.h"

namespace millrace::interchange {
namespace {

// What both coordinates of a box need.
struct YoloHead {
  std::string values;  // [batch, anchors, 5 + classes, height, width]
  DType dtype = DType::kFloat32;
  float scale = 1;
  int64_t downsample = 1;
};

// Centre and half size along one axis, in pixels: [batch, anchors, 1, height, width] each.
struct YoloSide {
  std::string centre, half, last;  // last: the last pixel of the image
};

YoloSide yolo_side(OpContext& c, const YoloHead& head, bool is_row) {
  const auto number = [&](double value) { return c.scalar(value, head.dtype); };
  const int64_t part = is_row ? 1 : 0;
  const std::string cells = c.reshape(c.extent(c.in("X"), is_row ? 2 : 3), {});
  std::string index = c.cast(
      c.node("Range", {c.scalar(0, DType::kInt64), cells, c.scalar(1, DType::kInt64)}), head.dtype);
  if (is_row) index = c.unsqueeze(index, {1});
  // ImgSize has height and width of each image.
  const std::string image =
      c.reshape(c.cast(c.slice(c.in("ImgSize"), 1, is_row ? 0 : 1, is_row ? 1 : 2), head.dtype),
                {-1, 1, 1, 1, 1});
  const std::string count = c.cast(cells, head.dtype);
  std::string shift = c.node("Sigmoid", {c.slice(head.values, 2, part, part + 1)});
  if (head.scale != 1) {
    shift = c.node("Add", {c.node("Mul", {shift, number(head.scale)}),
                           number(-0.5 * (static_cast<double>(head.scale) - 1))});
  }
  std::vector<double> anchors;
  const std::vector<int64_t> pairs = c.ints("anchors");
  for (size_t i = static_cast<size_t>(part); i < pairs.size(); i += 2)
    anchors.push_back(static_cast<double>(pairs[i]));
  const std::string sizes =
      c.graph().numbers(anchors, head.dtype, {1, static_cast<int64_t>(anchors.size()), 1, 1, 1});
  const std::string grown =
      c.node("Mul", {c.node("Exp", {c.slice(head.values, 2, 2 + part, 3 + part)}), sizes});
  const std::string pixels = c.node("Mul", {count, number(static_cast<double>(head.downsample))});
  const std::string length = c.node("Div", {c.node("Mul", {grown, image}), pixels});
  YoloSide side;
  side.centre = c.node("Div", {c.node("Mul", {c.node("Add", {index, shift}), image}), count});
  side.half = c.node("Mul", {length, number(0.5)});
  side.last = c.node("Sub", {image, number(1)});
  return side;
}

Status yolo_box(OpContext& c) {
  if (c.attr<bool>("iou_aware")) return c.refuse("yolo_box with iou_aware");
  c.ignore({"iou_aware_factor"});
  const auto anchors = static_cast<int64_t>(c.ints("anchors").size()) / 2;
  const auto classes = c.attr<int64_t>("class_num");
  YoloHead head;
  head.dtype = c.dtype("X");
  head.scale = c.attr<float>("scale_x_y");
  head.downsample = c.attr<int64_t>("downsample_ratio");
  const std::string rest = c.node("Shape", {c.in("X")}, {{"start", int64_t{2}}});
  const std::string dims =
      c.node("Concat", {c.graph().ints({0, anchors, 5 + classes}), rest}, {{"axis", int64_t{0}}});
  head.values = c.node("Reshape", {c.in("X"), dims});
  const YoloSide x = yolo_side(c, head, /*is_row=*/false);
  const YoloSide y = yolo_side(c, head, /*is_row=*/true);
  const bool clip = c.attr<bool>("clip_bbox");
  const std::string zero = c.scalar(0, head.dtype);
  const auto low = [&](const YoloSide& side) {
    const std::string value = c.node("Sub", {side.centre, side.half});
    return clip ? c.node("Max", {value, zero}) : value;
  };
  const auto high = [&](const YoloSide& side) {
    const std::string value = c.node("Add", {side.centre, side.half});
    return clip ? c.node("Min", {value, side.last}) : value;
  };
  const std::string boxes =
      c.node("Concat", {low(x), low(y), high(x), high(y)}, {{"axis", int64_t{2}}});
  const std::string confidence = c.node("Sigmoid", {c.slice(head.values, 2, 4, 5)});
  const std::string is_poor =
      c.node("Less", {confidence, c.scalar(c.attr<float>("conf_thresh"), head.dtype)});
  const std::string scores =
      c.node("Mul", {confidence, c.node("Sigmoid", {c.slice(head.values, 2, 5, 5 + classes)})});
  const auto as_rows = [&](const std::string& value, int64_t width) {
    const std::string kept = c.node("Where", {is_poor, zero, value});
    return c.reshape(c.transpose(kept, {0, 1, 3, 4, 2}), {0, -1, width});
  };
  c.set("Boxes", as_rows(boxes, 4));
  c.set("Scores", as_rows(scores, classes));
  return Ok();
}

}  // namespace

void add_yolo_ops(ConverterTable& table) {
  table["yolo_box"] = yolo_box;
}

}  // namespace millrace::interchange
