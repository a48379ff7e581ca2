// Nodes that move, join and split elements without computing.

#include <algorithm>
#include <limits>
#include <numeric>

#include "interchange/from_onnx/node_context.h"

namespace millrace::interchange {
namespace {

constexpr size_t kManyInputs = std::numeric_limits<int>::max();

// The target of a reshape as an attribute, if what is unknown is one dim that the others determine.
std::optional<std::vector<int64_t>> target_as_attribute(const KnownElements& target,
                                                        bool zero_is_extent) {
  std::vector<int64_t> dims;
  size_t open = 0;
  for (const auto& element : target) {
    dims.push_back(element ? to_int64(*element) : -1);
    open += dims.back() == -1 ? 1 : 0;
  }
  const bool has_zero = std::count(dims.begin(), dims.end(), 0) > 0;
  const bool is_computed =
      std::any_of(target.begin(), target.end(), [](const auto& e) { return !e; });
  if (open > 1 || (has_zero && (zero_is_extent || is_computed))) return std::nullopt;
  return dims;
}

// What is known about the result of a reshape.
Dims known_target(NodeContext& c, const std::string& x, const KnownElements& target,
                  bool zero_is_extent) {
  Dims dims;
  for (size_t i = 0; i < target.size(); ++i) {
    int64_t dim = target[i] ? static_cast<int64_t>(*target[i]) : -1;
    if (dim == 0 && !zero_is_extent) dim = c.extent(x, static_cast<int64_t>(i));
    dims.push_back(std::max<int64_t>(dim, -1));
  }
  return dims;
}

Status reshape_node(NodeContext& c) {
  const bool zero_is_extent = c.attr_bool("allowzero", false);
  const std::string x = c.in(0);
  const std::string target = c.in(1);
  if (c.rank(target) != 1) return c.refuse("a shape that is no vector");
  const KnownElements* const known = c.known(target);
  if (known != nullptr) {
    if (const auto dims = target_as_attribute(*known, zero_is_extent)) {
      c.set(0, c.reshape(x, *dims));
      return Ok();
    }
  }
  if (zero_is_extent) return c.refuse("allowzero with a shape that may have zeros");
  const std::string out = c.op("reshape2", {{"X", {x}}, {"Shape", {target}}});
  if (known != nullptr) c.refine(out, known_target(c, x, *known, zero_is_extent));
  c.set(0, out);
  return Ok();
}

Status transpose_node(NodeContext& c) {
  const std::string x = c.in(0);
  std::vector<int64_t> order = c.attr_ints("perm");
  const int64_t rank = c.rank(x);
  if (order.empty())
    for (int64_t i = rank - 1; i >= 0; --i) order.push_back(i);
  c.set(0, rank == 0 ? x : c.transpose(x, order));
  return Ok();
}

// Axes are an attribute before operator set 13, then an input.
std::vector<int64_t> stated_axes(NodeContext& c) {
  if (c.opset() < 13) return c.attr_ints("axes");
  return c.has(1) ? c.fixed_ints(1, "axes") : std::vector<int64_t>();
}

Status squeeze_node(NodeContext& c) {
  const std::string x = c.in(0);
  const int64_t rank = c.rank(x);
  std::vector<int64_t> axes = stated_axes(c);
  for (int64_t& axis : axes) {
    axis = c.axis_of(axis, rank);
    // The op keeps an axis of another extent; in ONNX that is an error.
    if (c.extent(x, axis) > 1) return c.refuse("an axis whose extent is not 1");
  }
  const bool is_stated = c.opset() < 13 ? c.has_attr("axes") : c.has(1);
  if (!is_stated) {
    if (!c.is_static(x)) return c.refuse("all axes of extent 1, where extents are unknown");
    for (int64_t i = 0; i < rank; ++i)
      if (c.extent(x, i) == 1) axes.push_back(i);
  }
  c.set(0, c.squeeze(x, axes));
  return Ok();
}

// Axes count in the result; the op inserts one after the other.
Status unsqueeze_node(NodeContext& c) {
  const std::string x = c.in(0);
  std::vector<int64_t> axes = stated_axes(c);
  const auto rank = c.rank(x) + static_cast<int64_t>(axes.size());
  for (int64_t& axis : axes) axis = c.axis_of(axis, rank);
  std::sort(axes.begin(), axes.end());
  if (std::adjacent_find(axes.begin(), axes.end()) != axes.end())
    return c.refuse("an axis that is stated twice");
  c.set(0, c.unsqueeze(x, axes));
  return Ok();
}

Status flatten_node(NodeContext& c) {
  const std::string x = c.in(0);
  const int64_t rank = c.rank(x);
  const int64_t stated = c.attr_int("axis", 1);
  const int64_t axis = stated < 0 ? stated + rank : stated;
  if (axis < 0 || axis > rank) return c.refuse("an axis out of range");
  const Dims dims = c.dims(x);
  const auto product = [&](int64_t begin, int64_t end) {
    int64_t all = 1;
    for (int64_t i = begin; i < end; ++i) {
      if (dims[static_cast<size_t>(i)] < 0) return int64_t{-1};
      all *= dims[static_cast<size_t>(i)];
    }
    return all;
  };
  const int64_t rows = product(0, axis);
  const int64_t columns = product(axis, rank);
  if (rows < 0 && columns < 0) {
    if (axis != 1) return c.refuse("unknown extents on both sides of the axis");
    c.set(0, c.reshape(x, {0, -1}));
    return Ok();
  }
  c.set(0, c.reshape(x, {rows, columns}));
  return Ok();
}

Status concat_node(NodeContext& c) {
  const std::vector<std::string> parts = c.ins();
  const int64_t axis = c.attr_axis("axis", 0, c.rank(parts[0]));
  c.set(0, c.op("concat", {{"X", parts}}, {int_attr("axis", axis)}));
  return Ok();
}

// Without sizes, parts are equal; from operator set 18 on the last one may be smaller.
Status split_node(NodeContext& c) {
  const std::string x = c.in(0);
  const int64_t axis = c.attr_axis("axis", 0, c.rank(x));
  const auto parts = static_cast<int64_t>(c.output_count());
  const int64_t extent = c.extent(x, axis);
  std::vector<int64_t> sizes;
  if (c.opset() < 13)
    sizes = c.attr_ints("split");
  else if (c.has(1))
    sizes = c.fixed_ints(1, "sizes");
  const int64_t stated = c.opset() >= 18 ? c.attr_int("num_outputs", parts) : parts;
  if (stated != parts) return c.refuse("num_outputs that is not the number of outputs");
  if (sizes.empty()) {
    if (extent < 0 || parts < 1) return c.refuse("equal parts of an unknown extent");
    const int64_t size = (extent + parts - 1) / parts;
    for (int64_t i = 0; i < parts; ++i)
      sizes.push_back(std::clamp<int64_t>(extent - i * size, 0, size));
  }
  if (static_cast<int64_t>(sizes.size()) != parts)
    return c.refuse("another number of sizes than outputs");
  if (std::any_of(sizes.begin(), sizes.end(), [](int64_t size) { return size <= 0; }))
    return c.refuse("a part without elements");
  const std::vector<std::string> outs =
      c.ops("split", {{"X", {x}}}, {ints_attr("sections", sizes), int_attr("axis", axis)},
            {{"Out", sizes.size()}});
  for (size_t i = 0; i < outs.size(); ++i) c.set(i, outs[i]);
  return Ok();
}

// Broadcasts in both directions: an extent of 1 in the shape keeps that of the operand.
Status expand_node(NodeContext& c) {
  const std::string x = c.in(0);
  const std::string target = c.in(1);
  const KnownElements* const known = c.known(target);
  const int64_t length = c.extent(target, 0);
  if (length < 0) return c.refuse("a shape of unknown length");
  const Dims own = c.dims(x);
  const size_t rank = std::max(own.size(), static_cast<size_t>(length));
  std::vector<int64_t> dims(rank, 1);
  bool is_known = true;
  for (size_t i = 0; i < rank; ++i) {
    const size_t lead_x = rank - own.size();
    const size_t lead = rank - static_cast<size_t>(length);
    const int64_t from = i < lead_x ? 1 : own[i - lead_x];
    const std::optional<long double> to =
        i < lead ? std::optional<long double>(1)
                 : (known == nullptr ? std::nullopt : (*known)[i - lead]);
    // -1 keeps an extent, if the operand has the axis.
    if (!to)
      dims[i] = -1;
    else
      dims[i] = *to == 1 ? from : to_int64(*to);
    is_known = is_known && to && (dims[i] >= 0 || i >= lead_x);
  }
  if (is_known) {
    c.set(0, c.op("expand_v2", {{"X", {x}}}, {ints_attr("shape", dims)}));
    return Ok();
  }
  // A tensor of that shape takes part in a sum, which broadcasts in both directions.
  const std::string zeros =
      c.op("fill_constant", {{"ShapeTensor", {target}}},
           {ints_attr("shape", {}), dtype_attr("dtype", DType::kInt32), float_attr("value", 0)});
  c.refine(zeros, Dims(dims.end() - length, dims.end()));
  const std::string out = c.broadcast({x, zeros})[0];
  c.refine(out, Dims(dims.begin(), dims.end()));
  c.set(0, out);
  return Ok();
}

Status tile_node(NodeContext& c) {
  const std::string x = c.in(0);
  const std::string repeats = c.in(1);
  if (const auto times = c.ints(repeats)) {
    c.set(0, c.rank(x) == 0 ? x : c.op("tile", {{"X", {x}}}, {ints_attr("repeat_times", *times)}));
    return Ok();
  }
  c.set(0, c.op("tile", {{"X", {x}}, {"RepeatTimes", {c.cast(repeats, DType::kInt32)}}}));
  return Ok();
}

Status shape_node(NodeContext& c) {
  const std::string x = c.in(0);
  const int64_t rank = c.rank(x);
  const auto bound = [&](const char* name, int64_t fallback) {
    const int64_t at = c.attr_int(name, fallback);
    return std::clamp<int64_t>(at < 0 ? at + rank : at, 0, rank);
  };
  const int64_t start = bound("start", 0);
  const int64_t end = bound("end", rank);
  if (start >= end) {
    c.set(0, c.longs({}));
    return Ok();
  }
  const std::string all = c.shape(x);
  c.set(0, start == 0 && end == rank ? all : c.slice(all, 0, start, end));
  return Ok();
}

Status size_node(NodeContext& c) {
  const std::string size = c.op("size", {{"Input", {c.in(0)}}});
  c.set(0, c.rank(size) == 0 ? size : c.reshape(size, {}));
  return Ok();
}

// The extents of an image in unknown batches: [n, c, h, w] with h and w known.
Status image_dims(NodeContext& c, const std::string& x, Dims& dims) {
  dims = c.dims(x);
  if (dims.size() != 4) return c.refuse("an operand of other than 4 dims");
  int64_t unknown = 0;
  for (const int64_t dim : dims) unknown += dim < 0 ? 1 : 0;
  if (unknown > 1 || (unknown == 1 && dims[0] >= 0))
    return c.refuse("unknown extents of the image");
  return Ok();
}

Status depth_to_space_node(NodeContext& c) {
  const int64_t block = c.attr_int("blocksize", 0);
  const std::string mode = c.attr_string("mode", "DCR");
  const std::string x = c.in(0);
  if (block < 1 || block > 4096) return c.refuse("a blocksize below 1 or above 4096");
  if (mode == "CRD") {
    c.set(0, c.op("pixel_shuffle", {{"X", {x}}},
                  {int_attr("upscale_factor", block), string_attr("data_format", "NCHW")}));
    return Ok();
  }
  Dims d;
  MILLRACE_RETURN_IF_ERROR(image_dims(c, x, d));
  if (mode != "DCR" || d[1] % (block * block) != 0)
    return c.refuse("the mode or number of channels");
  const int64_t depth = d[1] / (block * block);
  const std::string parts = c.reshape(x, {d[0], block, block, depth, d[2], d[3]});
  c.set(0, c.reshape(c.transpose(parts, {0, 3, 4, 1, 5, 2}),
                     {d[0], depth, d[2] * block, d[3] * block}));
  return Ok();
}

Status space_to_depth_node(NodeContext& c) {
  const int64_t block = c.attr_int("blocksize", 0);
  const std::string x = c.in(0);
  Dims d;
  MILLRACE_RETURN_IF_ERROR(image_dims(c, x, d));
  if (block < 1 || block > 4096 || d[2] % block != 0 || d[3] % block != 0)
    return c.refuse("an image whose extents are no multiples of blocksize");
  const int64_t height = d[2] / block;
  const int64_t width = d[3] / block;
  const std::string parts = c.reshape(x, {d[0], d[1], height, block, width, block});
  c.set(0, c.reshape(c.transpose(parts, {0, 3, 5, 1, 2, 4}),
                     {d[0], d[1] * block * block, height, width}));
  return Ok();
}

// For each axis, the elements that are added before and after.
struct Border {
  std::vector<int64_t> begin;
  std::vector<int64_t> end;
};

Status read_border(NodeContext& c, const std::string& x, Border& border) {
  const int64_t rank = c.rank(x);
  const std::vector<int64_t> pads = c.opset() < 11 ? c.attr_ints("pads") : c.fixed_ints(1, "pads");
  std::vector<int64_t> axes;
  if (c.has(3))
    axes = c.fixed_ints(3, "axes");
  else
    for (int64_t i = 0; i < rank; ++i) axes.push_back(i);
  if (pads.size() != 2 * axes.size())
    return c.is_ok() ? c.refuse("pads that are not two for each axis") : c.finish();
  border.begin.assign(static_cast<size_t>(rank), 0);
  border.end = border.begin;
  const auto is_large = [](int64_t pad) { return pad > kMaxExtent || pad < -kMaxExtent; };
  if (std::any_of(pads.begin(), pads.end(), is_large)) return c.refuse("a border of this size");
  for (size_t i = 0; i < axes.size(); ++i) {
    const auto axis = static_cast<size_t>(c.axis_of(axes[i], rank));
    if (rank == 0) return c.refuse("a scalar");
    border.begin[axis] = pads[i];
    border.end[axis] = pads[axes.size() + i];
  }
  return Ok();
}

// The element that an element of the border repeats.
int64_t repeated(const std::string& mode, int64_t at, int64_t extent) {
  if (mode == "edge") return std::clamp<int64_t>(at, 0, extent - 1);
  if (mode == "wrap") return ((at % extent) + extent) % extent;
  const int64_t period = std::max<int64_t>(1, 2 * (extent - 1));
  const int64_t in_period = ((at % period) + period) % period;
  return std::min(in_period, period - in_period);
}

Status pad_with_elements(NodeContext& c, const std::string& x, const std::string& mode,
                         const Border& border) {
  std::string out = x;
  for (size_t i = 0; i < border.begin.size(); ++i) {
    if (border.begin[i] == 0 && border.end[i] == 0) continue;
    const int64_t extent = c.extent(x, static_cast<int64_t>(i));
    if (extent < 1) return c.refuse("a border of elements around an unknown extent");
    if (std::max(std::abs(border.begin[i]), std::abs(border.end[i])) > kMaxWindow ||
        extent > kMaxWindow)
      return c.refuse("a border of this size");
    // what is cut off is not repeated
    const int64_t first = std::max<int64_t>(0, -border.begin[i]);
    const int64_t kept = extent + std::min<int64_t>(0, border.end[i]) - first;
    std::vector<int64_t> from;
    for (int64_t at = -border.begin[i]; kept > 0 && at < extent + border.end[i]; ++at)
      from.push_back(first + repeated(mode, at - first, kept));
    if (from.empty()) return c.refuse("a border that leaves no elements");
    out = c.op("gather", {{"X", {out}}, {"Index", {c.longs(from)}}},
               {int_attr("axis", static_cast<int64_t>(i))});
  }
  c.set(0, out);
  return Ok();
}

Status pad_node(NodeContext& c) {
  const std::string x = c.in(0);
  const std::string mode = c.attr_string("mode", "constant");
  Border border;
  MILLRACE_RETURN_IF_ERROR(read_border(c, x, border));
  double value = c.opset() < 11 ? static_cast<double>(c.attr_float("value", 0)) : 0;
  if (c.has(2)) {
    const auto stated = c.number(c.in(2));
    if (!stated && mode == "constant") return c.refuse("a value that the model computes");
    value = stated.value_or(0);
  }
  if (mode == "reflect" || mode == "edge" || mode == "wrap")
    return pad_with_elements(c, x, mode, border);
  if (mode != "constant") return c.refuse("the mode " + mode);
  if (static_cast<double>(static_cast<float>(value)) != value && value == value)
    return c.refuse("a value that is no f32");
  std::vector<int64_t> pairs;
  for (size_t i = 0; i < border.begin.size(); ++i) {
    pairs.push_back(border.begin[i]);
    pairs.push_back(border.end[i]);
  }
  c.set(0,
        c.op("pad", {{"X", {x}}},
             {ints_attr("paddings", pairs), float_attr("pad_value", static_cast<float>(value))}));
  return Ok();
}

}  // namespace

void add_shape_nodes(NodeTable& table) {
  table["Reshape"] = {reshape_node, 2, 2};
  table["Transpose"] = {transpose_node};
  table["Squeeze"] = {squeeze_node, 1, 2};
  table["Unsqueeze"] = {unsqueeze_node, 1, 2};
  table["Flatten"] = {flatten_node};
  table["Concat"] = {concat_node, 1, kManyInputs};
  table["Split"] = {split_node, 1, 2};
  table["Expand"] = {expand_node, 2, 2};
  table["Tile"] = {tile_node, 2, 2};
  table["Shape"] = {shape_node};
  table["Size"] = {size_node};
  table["DepthToSpace"] = {depth_to_space_node};
  table["SpaceToDepth"] = {space_to_depth_node};
  table["Pad"] = {pad_node, 1, 4};
}

}  // namespace millrace::interchange
