// Boxes of detection models.

#include <cmath>

#include <llvm/ADT/STLExtras.h>

#include "interchange/onnx/op_context.h"

namespace millrace::interchange {
namespace {

struct PriorSizes {
  std::vector<double> half_width;
  std::vector<double> half_height;
};

// Aspect ratios in the order of the original: 1 first, repetitions left out, inverses after each.
std::vector<float> used_ratios(OpContext& c) {
  std::vector<float> used(1, 1.0F);
  const bool with_inverse = c.attr<bool>("flip");
  for (const float wanted : c.attr<std::vector<float>>("aspect_ratios")) {
    if (llvm::any_of(used, [&](float u) { return std::fabs(wanted - u) < 1e-6F; })) continue;
    used.push_back(wanted);
    if (with_inverse) used.push_back(1 / wanted);
  }
  return used;
}

// Half sizes of the boxes of one cell. A square between the smallest and the largest size comes
// after the others of its size, or after the first one.
PriorSizes prior_sizes(OpContext& c) {
  PriorSizes sizes;
  const auto largest = c.attr<std::vector<float>>("max_sizes");
  const std::vector<float> ratios = used_ratios(c);
  const size_t square_at = c.attr<bool>("min_max_aspect_ratios_order") ? 1 : ratios.size();
  size_t number = 0;
  for (const float size : c.attr<std::vector<float>>("min_sizes")) {
    std::vector<std::pair<double, double>> boxes;
    for (const double ratio : ratios)
      boxes.emplace_back(size * std::sqrt(ratio), size / std::sqrt(ratio));
    if (number < largest.size()) {
      const double side = std::sqrt(static_cast<double>(size) * largest[number]);
      boxes.insert(boxes.begin() + static_cast<int64_t>(square_at), {side, side});
    }
    ++number;
    for (const auto& [width, height] : boxes) {
      sizes.half_width.push_back(width / 2);
      sizes.half_height.push_back(height / 2);
    }
  }
  return sizes;
}

// Positions of the cells along an axis of the feature map, in pixels of the image (f64).
struct CellAxis {
  std::string centres;  // [cells]
  std::string cells;    // int64 [1]
  std::string pixels;   // f64 [1]
};

CellAxis cell_axis(OpContext& c, int64_t axis, float step) {
  CellAxis result;
  result.cells = c.extent(c.in("Input"), axis);
  result.pixels = c.cast(c.extent(c.in("Image"), axis), DType::kFloat64);
  const std::string index =
      c.node("Range",
             {c.scalar(0, DType::kInt64), c.reshape(result.cells, {}), c.scalar(1, DType::kInt64)});
  const std::string moved = c.node(
      "Add", {c.cast(index, DType::kFloat64), c.scalar(c.attr<float>("offset"), DType::kFloat64)});
  const std::string width =
      step != 0 ? c.scalar(step, DType::kFloat64)
                : c.node("Div", {result.pixels, c.cast(result.cells, DType::kFloat64)});
  result.centres = c.node("Mul", {moved, width});
  return result;
}

// centre + sign * half size, as a fraction of the image: [height, width, shapes, 1].
std::string edge(OpContext& c, const CellAxis& axis, bool is_row, double sign,
                 const std::vector<double>& halves, const std::string& dims) {
  std::vector<double> moves = halves;
  for (double& move : moves) move *= sign;
  const std::string offsets =
      c.graph().numbers(moves, DType::kFloat64, {1, 1, static_cast<int64_t>(moves.size())});
  const std::string centres =
      c.unsqueeze(axis.centres, is_row ? std::vector<int64_t>{1, 2} : std::vector<int64_t>{0, 2});
  const std::string value = c.node("Div", {c.node("Add", {centres, offsets}), axis.pixels});
  return c.unsqueeze(c.node("Expand", {value, dims}), {3});
}

Status prior_box(OpContext& c) {
  const size_t larger = c.attr<std::vector<float>>("max_sizes").size();
  if (larger != 0 && larger != c.attr<std::vector<float>>("min_sizes").size())
    return c.refuse("min_sizes and max_sizes of different length");
  float step_w = c.attr<float>("step_w");
  float step_h = c.attr<float>("step_h");
  if (step_w == 0 || step_h == 0) step_w = step_h = 0;  // both follow from the image then
  const PriorSizes sizes = prior_sizes(c);
  const auto shapes = static_cast<int64_t>(sizes.half_width.size());
  const CellAxis rows = cell_axis(c, 2, step_h);
  const CellAxis columns = cell_axis(c, 3, step_w);
  const std::string dims = c.node("Concat", {rows.cells, columns.cells, c.graph().ints({shapes})},
                                  {{"axis", int64_t{0}}});
  std::string boxes = c.node("Concat",
                             {edge(c, columns, /*is_row=*/false, -1, sizes.half_width, dims),
                              edge(c, rows, /*is_row=*/true, -1, sizes.half_height, dims),
                              edge(c, columns, /*is_row=*/false, 1, sizes.half_width, dims),
                              edge(c, rows, /*is_row=*/true, 1, sizes.half_height, dims)},
                             {{"axis", int64_t{3}}});
  if (c.attr<bool>("clip"))
    boxes = c.node("Clip", {boxes, c.scalar(0, DType::kFloat64), c.scalar(1, DType::kFloat64)});
  const auto variances = c.attr<std::vector<float>>("variances");
  const std::string all_dims =
      c.node("Concat", {dims, c.graph().ints({4})}, {{"axis", int64_t{0}}});
  c.set("Boxes", c.cast(boxes, c.dtype("Input")));
  c.set("Variances",
        c.node("Expand", {c.graph().numbers({variances.begin(), variances.end()}, c.dtype("Input"),
                                            {static_cast<int64_t>(variances.size())}),
                          all_dims}));
  return Ok();
}

// Columns 0 to 3 of boxes, each with a last axis of extent 1.
std::vector<std::string> coordinates(OpContext& c, const std::string& boxes) {
  std::vector<std::string> parts;
  for (int64_t i = 0; i < 4; ++i) parts.push_back(c.slice(boxes, -1, i, i + 1));
  return parts;
}

struct CentredBoxes {
  std::string x, y, width, height;
};

CentredBoxes centred(OpContext& c, const std::string& boxes, double extra, DType dtype) {
  const std::vector<std::string> p = coordinates(c, boxes);
  const auto size = [&](const std::string& low, const std::string& high) {
    const std::string value = c.node("Sub", {high, low});
    return extra == 0 ? value : c.node("Add", {value, c.scalar(extra, dtype)});
  };
  const auto centre = [&](const std::string& low, const std::string& length) {
    return c.node("Add", {low, c.node("Mul", {length, c.scalar(0.5, dtype)})});
  };
  CentredBoxes result;
  result.width = size(p[0], p[2]);
  result.height = size(p[1], p[3]);
  result.x = centre(p[0], result.width);
  result.y = centre(p[1], result.height);
  return result;
}

Status box_coder(OpContext& c) {
  const DType dtype = c.dtype("PriorBox");
  const double extra = c.attr<bool>("box_normalized") ? 0 : 1;
  const bool encode = c.attr<std::string>("code_type") == "encode_center_size";
  const auto axis = c.attr<int64_t>("axis");
  auto fixed = c.attr<std::vector<float>>("variance");
  if (fixed.empty()) fixed.assign(4, 1.0F);
  std::string variance = c.graph().numbers({fixed.begin(), fixed.end()}, dtype, {1, 4});
  if (c.has("PriorBoxVar")) variance = c.in("PriorBoxVar");
  // Priors belong to the columns of the result, or with axis 1 to its rows.
  const std::vector<int64_t> prior_axis = {!encode && axis == 1 ? 1 : 0};
  const CentredBoxes prior = centred(c, c.unsqueeze(c.in("PriorBox"), prior_axis), extra, dtype);
  const std::vector<std::string> scale = coordinates(c, c.unsqueeze(variance, prior_axis));
  std::vector<std::string> out;
  if (encode) {
    const std::string boxes = c.unsqueeze(c.in("TargetBox"), {1});
    const CentredBoxes target = centred(c, boxes, extra, dtype);
    const std::vector<std::string> p = coordinates(c, boxes);
    const auto middle = [&](const std::string& low, const std::string& high) {
      return c.node("Mul", {c.node("Add", {low, high}), c.scalar(0.5, dtype)});
    };
    const auto shift = [&](const std::string& from, const std::string& to, const std::string& size,
                           const std::string& divisor) {
      return c.node("Div", {c.node("Div", {c.node("Sub", {from, to}), size}), divisor});
    };
    const auto ratio = [&](const std::string& own, const std::string& other,
                           const std::string& divisor) {
      const std::string quotient = c.node("Abs", {c.node("Div", {own, other})});
      return c.node("Div", {c.node("Log", {quotient}), divisor});
    };
    out = {shift(middle(p[0], p[2]), prior.x, prior.width, scale[0]),
           shift(middle(p[1], p[3]), prior.y, prior.height, scale[1]),
           ratio(target.width, prior.width, scale[2]),
           ratio(target.height, prior.height, scale[3])};
  } else {
    const std::vector<std::string> p = coordinates(c, c.in("TargetBox"));
    const auto place = [&](size_t i, const std::string& size, const std::string& from) {
      return c.node("Add", {c.node("Mul", {c.node("Mul", {scale[i], p[i]}), size}), from});
    };
    const auto half = [&](size_t i, const std::string& size) {
      const std::string whole =
          c.node("Mul", {c.node("Exp", {c.node("Mul", {scale[i], p[i]})}), size});
      return c.node("Mul", {whole, c.scalar(0.5, dtype)});
    };
    const std::string x = place(0, prior.width, prior.x);
    const std::string y = place(1, prior.height, prior.y);
    const std::string w = half(2, prior.width);
    const std::string h = half(3, prior.height);
    const auto high = [&](const std::string& centre, const std::string& length) {
      const std::string value = c.node("Add", {centre, length});
      return extra == 0 ? value : c.node("Sub", {value, c.scalar(extra, dtype)});
    };
    out = {c.node("Sub", {x, w}), c.node("Sub", {y, h}), high(x, w), high(y, h)};
  }
  c.set("OutputBox", c.node("Concat", out, {{"axis", int64_t{-1}}}));
  return Ok();
}

// Scores in which only the best nms_top_k of each class, and no background, can pass the threshold.
std::string candidates(OpContext& c, const std::string& scores) {
  std::string result = scores;
  const DType dtype = c.dtype("Scores");
  const std::string low = c.scalar(-INFINITY, dtype);
  const auto most = c.attr<int64_t>("nms_top_k");
  if (most > -1) {
    const std::string count = c.node("Min", {c.extent(scores, 2), c.graph().ints({most})});
    const std::vector<std::string> best =
        c.nodes("TopK", {scores, count}, {{"axis", int64_t{2}}}, 2);
    const std::string nothing = c.node("Expand", {low, c.shape(scores)});
    result = c.node("ScatterElements", {nothing, best[1], best[0]}, {{"axis", int64_t{2}}});
  }
  const auto background = c.attr<int64_t>("background_label");
  const int64_t classes = c.dims("Scores")[1];
  if (background < 0 || (classes >= 0 && background >= classes)) return result;
  const std::string index = c.node(
      "Range",
      {c.scalar(0, DType::kInt64), c.reshape(c.extent(scores, 1), {}), c.scalar(1, DType::kInt64)});
  const std::string is_background =
      c.node("Equal", {c.unsqueeze(index, {0, 2}), c.graph().ints({background}, {})});
  return c.node("Where", {is_background, low, result});
}

// Boxes for the selection: one whose corners are swapped overlaps no other, while ONNX would put
// them in order. Without an area it overlaps none either.
std::string ordered_boxes(OpContext& c, const std::string& boxes) {
  const std::string low = c.slice(boxes, 2, 0, 2);
  const std::string high = c.slice(boxes, 2, 2, 4);
  const std::string swapped =
      c.reduce("ReduceMax", c.cast(c.node("Less", {high, low}), DType::kInt32), {2}, true);
  const std::string point = c.node("Concat", {low, low}, {{"axis", int64_t{2}}});
  return c.node("Where", {c.cast(swapped, DType::kBool), point, boxes});
}

// Of the rows (image, class, box), which are ordered by image, class and falling score, those that
// are among the best keep_top_k of their image.
std::string best_of_image(OpContext& c, const std::string& selected, const std::string& score,
                          int64_t most) {
  const std::string image = c.slice(selected, 1, 0, 1);  // [m, 1]
  const std::string turned = c.transpose(image, {1, 0});
  const std::string own = c.unsqueeze(score, {1});
  const std::string other = c.unsqueeze(score, {0});
  const std::string number = c.node(
      "Range",
      {c.scalar(0, DType::kInt64), c.reshape(c.extent(score, 0), {}), c.scalar(1, DType::kInt64)});
  const std::string earlier = c.node("Less", {c.unsqueeze(number, {0}), c.unsqueeze(number, {1})});
  const std::string tied = c.node("And", {c.node("Equal", {other, own}), earlier});
  const std::string better = c.node("Or", {c.node("Greater", {other, own}), tied});
  const std::string beaten = c.node("And", {c.node("Equal", {turned, image}), better});
  const std::string rank = c.reduce("ReduceSum", c.cast(beaten, DType::kInt64), {1}, false);
  return c.node("Less", {rank, c.graph().ints({most}, {})});
}

// One row with -1 where the rows are none: the first version of the op returns it.
std::string minus_one_if_empty(OpContext& c, const std::string& rows, const std::string& is_empty,
                               DType dtype) {
  const std::string extra =
      c.node("Compress", {c.graph().numbers({-1}, dtype, {1}), is_empty}, {{"axis", int64_t{0}}});
  const std::string flat = c.node("Concat", {c.reshape(rows, {-1}), extra}, {{"axis", int64_t{0}}});
  const std::string width = c.node("Where", {is_empty, c.graph().ints({1}), c.graph().ints({6})});
  const std::string dims = c.node("Concat", {c.graph().ints({-1}), width}, {{"axis", int64_t{0}}});
  return c.node("Reshape", {flat, dims});
}

Status multiclass_nms(OpContext& c) {
  const bool is_first = c.op().type() == "multiclass_nms";
  const DType dtype = c.dtype("BBoxes");
  if (dtype != DType::kFloat32) return c.refuse("boxes of another type than f32");
  if (c.rank("Scores") != 3 || c.dims("BBoxes")[2] != 4)
    return c.refuse("boxes that are not [batch, boxes, 4]");
  if (c.attr<float>("nms_eta") < 1) return c.refuse("a threshold that changes (nms_eta)");
  const std::string boxes = c.in("BBoxes");
  const std::string scores = c.in("Scores");
  // Such boxes are one larger, but boxes less than one apart do not overlap.
  if (!c.attr<bool>("normalized")) return c.refuse("boxes with pixels as corners (normalized)");
  std::string selected =
      c.node("NonMaxSuppression",
             {ordered_boxes(c, boxes), candidates(c, scores), c.graph().ints({INT32_MAX}),
              c.graph().numbers({c.attr<float>("nms_threshold")}, dtype, {1}),
              c.graph().numbers({c.attr<float>("score_threshold")}, dtype, {1})});
  std::string score = c.node("GatherND", {scores, selected});
  if (const auto most = c.attr<int64_t>("keep_top_k"); most > -1) {
    const std::string kept = best_of_image(c, selected, score, most);
    selected = c.node("Compress", {selected, kept}, {{"axis", int64_t{0}}});
    score = c.node("Compress", {score, kept}, {{"axis", int64_t{0}}});
  }
  const std::string image = c.slice(selected, 1, 0, 1);
  const std::string box = c.slice(selected, 1, 2, 3);
  const std::string place = c.node("Concat", {image, box}, {{"axis", int64_t{1}}});
  std::string out = c.node("Concat",
                           {c.cast(c.slice(selected, 1, 1, 2), dtype), c.unsqueeze(score, {1}),
                            c.node("GatherND", {boxes, place})},
                           {{"axis", int64_t{1}}});
  const std::string images = c.node(
      "Range",
      {c.scalar(0, DType::kInt64), c.reshape(c.extent(boxes, 0), {}), c.scalar(1, DType::kInt64)});
  const std::string counts = c.reduce(
      "ReduceSum", c.cast(c.node("Equal", {image, c.unsqueeze(images, {0})}), DType::kInt64), {0},
      false);
  std::string ends = c.node("CumSum", {counts, c.graph().ints({0}, {})});
  std::string offsets = c.node("Concat", {c.graph().ints({0}), ends}, {{"axis", int64_t{0}}});
  if (is_first) {
    const std::string is_empty = c.node("Equal", {c.extent(out, 0), c.graph().ints({0})});
    out = minus_one_if_empty(c, out, is_empty, dtype);
    // The only row is then the only sequence: [0, 1].
    const std::string last = c.node("Where", {is_empty, c.graph().ints({2}), c.extent(offsets, 0)});
    const std::string step = c.node(
        "Range", {c.scalar(0, DType::kInt64), c.reshape(last, {}), c.scalar(1, DType::kInt64)});
    const std::string bound =
        c.node("Min", {step, c.node("Sub", {c.extent(offsets, 0), c.graph().ints({1})})});
    offsets = c.node("Where", {is_empty, step, c.node("Gather", {offsets, bound})});
  } else {
    const std::string first = c.node("Mul", {image, c.extent(boxes, 1)});
    c.set("Index", c.cast(c.node("Add", {first, box}), DType::kInt32));
  }
  if (c.op().type() == "multiclass_nms3") c.set("NmsRoisNum", c.cast(counts, DType::kInt32));
  const bool with_lod = c.op().output("NmsRoisNum").empty();
  if (with_lod) c.set_lod("Out", {offsets});
  c.set("Out", out);
  return Ok();
}

}  // namespace

void add_detection_ops(ConverterTable& table) {
  table["prior_box"] = prior_box;
  table["box_coder"] = box_coder;
  for (const char* type : {"multiclass_nms", "multiclass_nms2", "multiclass_nms3"})
    table[type] = multiclass_nms;
}

}  // namespace millrace::interchange
