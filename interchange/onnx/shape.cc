// Ops that move, join and split elements without computing.

#include <numeric>

#include "interchange/onnx/op_context.h"

namespace millrace::interchange {
namespace {

// A list of one-element tensors as one int64 vector.
std::string joined(OpContext& c, llvm::StringRef slot) {
  std::vector<std::string> parts;
  for (const std::string& value : c.ins(slot))
    parts.push_back(c.cast(c.reshape(value, {1}), DType::kInt64));
  return parts.size() == 1 ? parts[0] : c.node("Concat", parts, {{"axis", int64_t{0}}});
}

// Sizes from a tensor, a list of tensors, or an attribute, in this order.
std::string sizes_of(OpContext& c, llvm::StringRef tensor, llvm::StringRef list,
                     llvm::StringRef attr) {
  c.ignore({attr});
  const bool has_list = c.has(list);
  if (c.has(tensor)) {
    if (has_list) c.ins(list);
    return c.cast(c.reshape(c.in(tensor), {-1}), DType::kInt64);
  }
  return has_list ? joined(c, list) : c.graph().ints(c.ints(attr));
}

// 0 and -1 mean the same in both formats.
Status reshape(OpContext& c) {
  // The original gives the list precedence.
  std::string dims;
  if (c.has("ShapeTensor")) {
    c.ignore({"shape"});
    if (c.has("Shape")) c.ins("Shape");
    dims = joined(c, "ShapeTensor");
  } else {
    dims = sizes_of(c, "Shape", "", "shape");
  }
  c.set("Out", c.node("Reshape", {c.in("X"), dims}));
  return Ok();
}

Status transpose(OpContext& c) {
  c.ignore({"data_format"});
  std::vector<int64_t> order = c.ints("axis");
  for (int64_t& axis : order)
    if (axis < 0) axis += c.rank("X");
  c.set("Out", order.empty() ? c.node("Identity", {c.in("X")}) : c.transpose(c.in("X"), order));
  return Ok();
}

// Axes of other extents than 1 stay. Where the extent is unknown it has to be 1: else the model
// stops with an error.
Status squeeze(OpContext& c) {
  const Dims dims = c.dims("X");
  std::vector<int64_t> axes;
  for (int64_t axis : c.ints("axes")) {
    if (axis < 0) axis += static_cast<int64_t>(dims.size());
    const int64_t extent = dims[static_cast<size_t>(axis)];
    if (extent == 1 || extent < 0) axes.push_back(axis);
  }
  if (c.ints("axes").empty()) {
    for (size_t i = 0; i < dims.size(); ++i) {
      if (dims[i] < 0) return c.refuse("squeeze of all axes, with an unknown extent");
      if (dims[i] == 1) axes.push_back(static_cast<int64_t>(i));
    }
  }
  c.set("Out", axes.empty() ? c.node("Identity", {c.in("X")}) : c.squeeze(c.in("X"), axes));
  return Ok();
}

Status unsqueeze(OpContext& c) {
  const std::string x = c.in("X");
  if (c.has("AxesTensor") || c.has("AxesTensorList"))
    return c.refuse("unsqueeze with axes as a tensor");
  // Axes are inserted one after the other, as the original does.
  std::string value = x;
  int64_t rank = c.rank("X");
  for (int64_t axis : c.ints("axes")) {
    ++rank;
    value = c.unsqueeze(value, {axis < 0 ? axis + rank : axis});
  }
  c.set("Out", value);
  return Ok();
}

Status flatten(OpContext& c) {
  c.set("Out", c.node("Flatten", {c.in("X")}, {{"axis", c.axis("axis", c.rank("X"))}}));
  return Ok();
}

Status flatten_range(OpContext& c) {
  const std::string x = c.in("X");
  const int64_t rank = c.rank("X");
  if (rank == 0) {
    c.ignore({"start_axis", "stop_axis"});
    c.set("Out", c.reshape(x, {1}));
    return Ok();
  }
  const int64_t start = c.axis("start_axis", rank);
  const int64_t stop = c.axis("stop_axis", rank);
  std::vector<int64_t> dims(static_cast<size_t>(start), 0);
  dims.push_back(-1);
  std::string target = c.graph().ints(dims);
  if (stop + 1 < rank) {
    const std::string rest = c.node("Shape", {x}, {{"start", stop + 1}});
    target = c.node("Concat", {target, rest}, {{"axis", int64_t{0}}});
  }
  c.set("Out", c.node("Reshape", {x, target}));
  return Ok();
}

Status concat(OpContext& c) {
  if (c.has("AxisTensor")) return c.refuse("concat along an axis given as a tensor");
  c.set("Out", c.node("Concat", c.ins("X"), {{"axis", c.axis("axis", c.rank("X"))}}));
  return Ok();
}

// Names the outputs of a node in order.
void set_all(OpContext& c, llvm::StringRef slot, const std::vector<std::string>& values) {
  for (size_t i = 0; i < values.size(); ++i) c.set(slot, values[i], i);
}

Status split(OpContext& c) {
  if (c.has("AxisTensor") || c.has("SectionsTensorList"))
    return c.refuse("split with axis or sections as tensors");
  const std::string x = c.in("X");
  const int64_t axis = c.axis("axis", c.rank("X"));
  const auto outputs = static_cast<int64_t>(c.op().output("Out").size());
  std::vector<int64_t> sections = c.ints("sections");
  c.ignore({"num"});
  const int64_t extent = c.dims("X")[static_cast<size_t>(axis)];
  int64_t known = 0;
  for (const int64_t section : sections) known += section < 0 ? 0 : section;
  for (int64_t& section : sections) {
    if (section >= 0) continue;
    if (extent < 0) return c.refuse("split of an axis of unknown extent into a section of -1");
    section = extent - known;
  }
  if (sections.empty()) {
    if (extent < 0) return c.refuse("split of an axis of unknown extent");
    sections.assign(static_cast<size_t>(outputs), extent / outputs);
  }
  set_all(
      c, "Out",
      c.nodes("Split", {x, c.graph().ints(sections)}, {{"axis", axis}}, static_cast<int>(outputs)));
  return Ok();
}

Status stack(OpContext& c) {
  const int64_t axis = c.axis("axis", c.rank("X") + 1);
  std::vector<std::string> parts;
  for (const std::string& value : c.ins("X")) parts.push_back(c.unsqueeze(value, {axis}));
  c.set("Y", c.node("Concat", parts, {{"axis", axis}}));
  return Ok();
}

Status unstack(OpContext& c) {
  c.ignore({"num"});
  const char* const slot = c.op().type() == "unstack" ? "Y" : "Out";
  const int64_t axis = c.axis("axis", c.rank("X"));
  const size_t outputs = c.op().output(slot).size();
  if (c.dims("X")[static_cast<size_t>(axis)] != static_cast<int64_t>(outputs))
    return c.refuse("an axis that has, or may have, more elements than the op has outputs");
  const std::string x = c.in("X");
  for (size_t i = 0; i < outputs; ++i) {
    const auto begin = static_cast<int64_t>(i);
    c.set(slot, c.squeeze(c.slice(x, axis, begin, begin + 1), {axis}), i);
  }
  return Ok();
}

Status expand_v2(OpContext& c) {
  const bool by_input = c.op().type() == "expand_as_v2";
  const std::string x = c.in("X");
  std::string dims;
  if (by_input) {
    c.ignore({"target_shape"});
    dims = c.has("Y") ? c.shape(c.in("Y")) : c.graph().ints(c.ints("target_shape"));
  } else if (c.has("Shape") || c.has("expand_shapes_tensor")) {
    dims = sizes_of(c, "Shape", "expand_shapes_tensor", "shape");
    // -1 keeps an extent, as 1 does in ONNX.
    dims = c.node("Max", {dims, c.graph().ints({1}, {})});
  } else {
    std::vector<int64_t> wanted = c.ints("shape");
    for (int64_t& dim : wanted) dim = dim == -1 ? 1 : dim;
    dims = c.graph().ints(wanted);
  }
  c.set("Out", c.node("Expand", {x, dims}));
  return Ok();
}

// Repeats along each axis; `tile` adds axes at the front where the list is longer or shorter.
Status tile(OpContext& c) {
  const bool is_tile = c.op().type() == "tile";
  const char* const tensor = is_tile ? "RepeatTimes" : "ExpandTimes";
  const char* const list = is_tile ? "repeat_times_tensor" : "expand_times_tensor";
  const char* const attr = is_tile ? "repeat_times" : "expand_times";
  std::string x = c.in("X");
  if (c.has(tensor) || c.has(list)) {
    c.set("Out", c.node("Tile", {x, sizes_of(c, tensor, list, attr)}));
    return Ok();
  }
  std::vector<int64_t> times = c.ints(attr);
  const auto rank = static_cast<size_t>(c.rank("X"));
  if (times.size() < rank) times.insert(times.begin(), rank - times.size(), 1);
  std::vector<int64_t> added(times.size() - rank);
  std::iota(added.begin(), added.end(), 0);
  c.set("Out", c.node("Tile", {c.unsqueeze(x, added), c.graph().ints(times)}));
  return Ok();
}

Status shape_op(OpContext& c) {
  c.set("Out", c.cast(c.shape(c.in("Input")), c.out_dtype("Out")));
  return Ok();
}

Status size_op(OpContext& c) {
  std::string size = c.node("Size", {c.in("Input")});
  if (c.out_dims("Out").size() == 1) size = c.unsqueeze(size, {0});
  c.set("Out", size);
  return Ok();
}

Status pixel_shuffle(OpContext& c) {
  if (c.attr<std::string>("data_format") != "NCHW")
    return c.refuse("pixel_shuffle with channels last");
  c.set("Out",
        c.node("DepthToSpace", {c.in("X")},
               {{"blocksize", c.attr<int64_t>("upscale_factor")}, {"mode", std::string("CRD")}}));
  return Ok();
}

Status shuffle_channel(OpContext& c) {
  const auto group = c.attr<int64_t>("group");
  const std::string x = c.in("X");
  const std::string rest = c.node("Shape", {x}, {{"start", int64_t{2}}});
  const std::string split_dims =
      c.node("Concat", {c.graph().ints({0, group, -1}), rest}, {{"axis", int64_t{0}}});
  const std::string swapped = c.transpose(c.node("Reshape", {x, split_dims}), {0, 2, 1, 3, 4});
  c.set("Out", c.node("Reshape", {swapped, c.shape(x)}));
  return Ok();
}

// Pads of ONNX list all beginnings, then all ends.
Status pad_with(OpContext& c, const std::vector<int64_t>& begin, const std::vector<int64_t>& end,
                const std::string& mode, float value) {
  std::vector<int64_t> pads = begin;
  pads.insert(pads.end(), end.begin(), end.end());
  std::vector<std::string> inputs = {c.in("X"), c.graph().ints(pads)};
  if (mode == "constant") inputs.push_back(c.scalar(value, c.dtype("X")));
  c.set("Out", c.node("Pad", inputs, {{"mode", mode}}));
  return Ok();
}

Status pad(OpContext& c) {
  const std::vector<int64_t> pairs = c.ints("paddings");
  std::vector<int64_t> begin;
  std::vector<int64_t> end;
  for (size_t i = 0; i + 1 < pairs.size(); i += 2) {
    begin.push_back(pairs[i]);
    end.push_back(pairs[i + 1]);
  }
  return pad_with(c, begin, end, "constant", c.attr<float>("pad_value"));
}

// pad2d lists (top, bottom, left, right); pad3d starts with the last dim.
Status pad_image(OpContext& c) {
  if (c.has("Paddings")) return c.refuse("paddings given as a tensor");
  const bool is_2d = c.op().type() == "pad2d";
  const size_t spatial = is_2d ? 2 : 3;
  const std::vector<int64_t> pairs = c.ints("paddings");
  auto mode = c.attr<std::string>("mode");
  const auto format = c.attr<std::string>("data_format");
  if (pairs.size() != 2 * spatial) return c.refuse("paddings of another length");
  if (mode == "replicate") mode = "edge";
  if (mode == "circular") return c.refuse("circular padding");
  const float value = c.attr<float>(is_2d ? "pad_value" : "value");
  std::vector<int64_t> begin(spatial + 2, 0);
  std::vector<int64_t> end(spatial + 2, 0);
  const size_t first = format == "NHWC" || format == "NDHWC" ? 1 : 2;
  for (size_t i = 0; i < spatial; ++i) {
    const size_t pair = is_2d ? i : spatial - 1 - i;
    begin[first + i] = pairs[2 * pair];
    end[first + i] = pairs[2 * pair + 1];
  }
  return pad_with(c, begin, end, mode, value);
}

}  // namespace

void add_shape_ops(ConverterTable& table) {
  table["reshape"] = table["reshape2"] = reshape;
  table["transpose"] = table["transpose2"] = transpose;
  table["squeeze"] = table["squeeze2"] = squeeze;
  table["unsqueeze"] = table["unsqueeze2"] = unsqueeze;
  table["flatten"] = table["flatten2"] = flatten;
  table["flatten_contiguous_range"] = flatten_range;
  table["concat"] = concat;
  table["split"] = split;
  table["stack"] = stack;
  table["unstack"] = table["unbind"] = unstack;
  table["expand_v2"] = table["expand_as_v2"] = expand_v2;
  table["tile"] = table["expand"] = tile;
  table["shape"] = shape_op;
  table["size"] = size_op;
  table["pixel_shuffle"] = pixel_shuffle;
  table["shuffle_channel"] = shuffle_channel;
  table["pad"] = pad;
  table["pad2d"] = table["pad3d"] = pad_image;
}

}  // namespace millrace::interchange
