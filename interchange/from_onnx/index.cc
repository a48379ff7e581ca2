// Nodes that select elements by position.

#include <algorithm>
#include <limits>

#include "interchange/from_onnx/node_context.h"

namespace millrace::interchange {
namespace {

// Bounds and steps of a slice. Attributes before operator set 10, then inputs.
struct SliceBounds {
  std::vector<int64_t> axes;
  std::vector<int64_t> steps;
  std::optional<std::vector<int64_t>> starts;
  std::optional<std::vector<int64_t>> ends;
};

SliceBounds read_bounds(NodeContext& c, int64_t rank) {
  SliceBounds s;
  size_t count = 0;
  if (c.opset() < 10) {
    s.starts = c.attr_ints("starts");
    s.ends = c.attr_ints("ends");
    s.axes = c.attr_ints("axes");
    count = s.starts->size();
  } else {
    s.starts = c.ints(c.in(1));
    s.ends = c.ints(c.in(2));
    if (c.has(3)) s.axes = c.fixed_ints(3, "axes");
    if (c.has(4)) s.steps = c.fixed_ints(4, "steps");
    count = static_cast<size_t>(std::max<int64_t>(0, c.extent(c.in(1), 0)));
  }
  if (s.axes.empty())
    for (size_t i = 0; i < count; ++i) s.axes.push_back(static_cast<int64_t>(i));
  for (int64_t& axis : s.axes) axis = c.axis_of(axis, rank);
  if (s.steps.empty()) s.steps.assign(s.axes.size(), 1);
  return s;
}

constexpr int64_t kFar = std::numeric_limits<int32_t>::max();

// Bounds in 32 bits, and as positions from the start where the extent is known.
int64_t near(int64_t at) {
  return std::clamp<int64_t>(at, -kFar, kFar);
}

// A slice with a step other than 1: the positions are constants of a gather.
Status gather_steps(NodeContext& c, std::string& x, int64_t axis, int64_t start, int64_t end,
                    int64_t step) {
  const int64_t extent = c.extent(x, axis);
  if (step == 0) return c.refuse("a step of 0");
  if (extent < 0 || extent > kMaxComputed)
    return c.refuse("a step other than 1 along an axis of unknown or very large extent");
  const auto from_end = [&](int64_t at) { return at < 0 ? at + extent : at; };
  const int64_t low = step > 0 ? 0 : -1;
  const int64_t high = step > 0 ? extent : extent - 1;
  const int64_t first = std::clamp<int64_t>(from_end(start), step > 0 ? 0 : 0, high);
  const int64_t last = std::clamp<int64_t>(from_end(end), low, high);
  std::vector<int64_t> at;
  if (step > 0)
    for (int64_t i = first; i < last; i += std::min(step, extent)) at.push_back(i);
  else
    for (int64_t i = std::min(first, extent - 1); i > last; i += std::max(step, -extent))
      at.push_back(i);
  if (at.empty()) return c.refuse("a slice without elements");
  x = c.op("gather", {{"X", {x}}, {"Index", {c.longs(at)}}}, {int_attr("axis", axis)});
  return Ok();
}

Status slice_node(NodeContext& c) {
  std::string x = c.in(0);
  const SliceBounds s = read_bounds(c, c.rank(x));
  if (s.starts && s.ends &&
      (s.starts->size() != s.axes.size() || s.ends->size() != s.axes.size() ||
       s.steps.size() != s.axes.size()))
    return c.refuse("starts, ends, axes and steps of different lengths");
  const bool is_fixed = s.starts && s.ends;
  if (!is_fixed) {
    if (std::any_of(s.steps.begin(), s.steps.end(), [](int64_t step) { return step != 1; }))
      return c.refuse("steps other than 1 with computed bounds");
    // The op reads bounds of 32 or 64 bits; they must not be constants beyond any extent.
    const std::vector<int64_t> flags(s.axes.size(), -1);
    c.set(0, c.op("slice", {{"Input", {x}}, {"StartsTensor", {c.in(1)}}, {"EndsTensor", {c.in(2)}}},
                  {ints_attr("axes", s.axes), ints_attr("infer_flags", flags)}));
    return Ok();
  }
  std::vector<int64_t> axes;
  std::vector<int64_t> starts;
  std::vector<int64_t> ends;
  for (size_t i = 0; i < s.axes.size(); ++i) {
    if (s.steps[i] != 1) {
      MILLRACE_RETURN_IF_ERROR(
          gather_steps(c, x, s.axes[i], (*s.starts)[i], (*s.ends)[i], s.steps[i]));
      continue;
    }
    axes.push_back(s.axes[i]);
    starts.push_back(near((*s.starts)[i]));
    ends.push_back(near((*s.ends)[i]));
  }
  if (!axes.empty())
    x = c.op("slice", {{"Input", {x}}},
             {ints_attr("axes", axes), ints_attr("starts", starts), ints_attr("ends", ends)});
  c.set(0, x);
  return Ok();
}

// Positions that count from the end become positions from the start.
std::string from_start(NodeContext& c, const std::string& x, int64_t axis,
                       const std::string& index) {
  const int64_t extent = c.extent(x, axis);
  if (const auto known = c.ints(index)) {
    if (std::none_of(known->begin(), known->end(), [](int64_t at) { return at < 0; })) return index;
    if (extent >= 0) {
      std::vector<int64_t> counted = *known;
      for (int64_t& at : counted) at = at < 0 ? at + extent : at;
      return c.longs(counted, c.dims(index));
    }
  }
  const DType dtype = c.dtype(index);
  const std::string length =
      extent >= 0 ? c.scalar(static_cast<double>(extent), dtype)
                  : c.cast(c.slice(c.shape(x), 0, axis, axis + 1, /*drop=*/true), dtype);
  const std::string moved = c.binary("elementwise_add", index, length);
  const std::string is_negative = c.binary("less_than", index, c.scalar(0, dtype));
  return c.op("where", {{"Condition", {is_negative}}, {"X", {moved}}, {"Y", {index}}});
}

// The shape of the result of a gather by an index of several dims.
Status reshape_gathered(NodeContext& c, const std::string& x, const std::string& index,
                        int64_t axis, std::string& out) {
  const Dims own = c.dims(x);
  const Dims picked = c.dims(index);
  Dims wanted(own.begin(), own.begin() + axis);
  wanted.append(picked.begin(), picked.end());
  wanted.append(own.begin() + axis + 1, own.end());
  if (std::count(wanted.begin(), wanted.end(), -1) <= 1) {
    out = c.reshape(out, {wanted.begin(), wanted.end()});
    return Ok();
  }
  std::vector<std::string> parts;
  const std::string shape = c.shape(x);
  if (axis > 0) parts.push_back(c.slice(shape, 0, 0, axis));
  parts.push_back(c.shape(index));
  if (axis + 1 < static_cast<int64_t>(own.size()))
    parts.push_back(c.slice(shape, 0, axis + 1, static_cast<int64_t>(own.size())));
  const std::string target =
      parts.size() == 1 ? parts[0] : c.op("concat", {{"X", parts}}, {int_attr("axis", 0)});
  out = c.op("reshape2", {{"X", {out}}, {"Shape", {target}}});
  c.refine(out, wanted);
  return Ok();
}

Status gather_node(NodeContext& c) {
  const std::string x = c.in(0);
  const int64_t rank = c.rank(x);
  if (rank == 0) return c.refuse("positions in a scalar");
  const int64_t axis = c.attr_axis("axis", 0, rank);
  const std::string index = from_start(c, x, axis, c.in(1));
  const int64_t index_rank = c.rank(index);
  const std::string flat = index_rank > 1 ? c.reshape(index, {-1}) : index;
  std::string out = c.op("gather", {{"X", {x}}, {"Index", {flat}}}, {int_attr("axis", axis)});
  if (index_rank > 1) MILLRACE_RETURN_IF_ERROR(reshape_gathered(c, x, index, axis, out));
  c.set(0, out);
  return Ok();
}

Status gather_elements_node(NodeContext& c) {
  const std::string x = c.in(0);
  const int64_t axis = c.attr_axis("axis", 0, c.rank(x));
  const std::string index = from_start(c, x, axis, c.in(1));
  c.set(0, c.op("take_along_axis", {{"Input", {x}}, {"Index", {index}}}, {int_attr("Axis", axis)},
                "Result"));
  return Ok();
}

// Each row of the index is a position; those from the end are moved by the extents.
std::string rows_from_start(NodeContext& c, const std::string& x, const std::string& index) {
  const int64_t depth = c.extent(index, -1);
  if (const auto known = c.ints(index))
    if (std::none_of(known->begin(), known->end(), [](int64_t at) { return at < 0; })) return index;
  const std::string extents = c.slice(c.shape(x), 0, 0, depth);
  const std::string moved = c.binary("elementwise_add", index, extents);
  const std::string is_negative = c.binary("less_than", index, c.scalar(0, DType::kInt64));
  return c.op("where", {{"Condition", {is_negative}}, {"X", {moved}}, {"Y", {index}}});
}

Status gather_nd_node(NodeContext& c) {
  if (c.attr_int("batch_dims", 0) != 0) return c.refuse("batch_dims");
  const std::string x = c.in(0);
  const std::string index = c.in(1);
  if (c.extent(index, -1) < 1) return c.refuse("positions of unknown length");
  c.set(0, c.op("gather_nd", {{"X", {x}}, {"Index", {rows_from_start(c, x, index)}}}));
  return Ok();
}

Status scatter_elements_node(NodeContext& c) {
  const std::string reduction = c.attr_string("reduction", "none");
  const std::string x = c.in(0);
  const int64_t axis = c.attr_axis("axis", 0, c.rank(x));
  if (reduction != "none" && reduction != "add") return c.refuse("the reduction " + reduction);
  const std::string index = from_start(c, x, axis, c.in(1));
  c.set(0, c.op("put_along_axis", {{"Input", {x}}, {"Index", {index}}, {"Value", {c.in(2)}}},
                {int_attr("Axis", axis),
                 string_attr("Reduce", reduction == "none" ? "assign" : "add")},
                "Result"));
  return Ok();
}

// Positions of several axes as positions in the flattened axes.
std::string flat_rows(NodeContext& c, const std::string& rows, const Dims& dims, int64_t depth) {
  std::vector<int64_t> strides(static_cast<size_t>(depth), 1);
  for (int64_t i = depth - 2; i >= 0; --i)
    strides[static_cast<size_t>(i)] =
        strides[static_cast<size_t>(i) + 1] * dims[static_cast<size_t>(i) + 1];
  const std::string weighted = c.binary("elementwise_mul", rows, c.longs(strides));
  const std::string sums =
      c.op("reduce_sum", {{"X", {weighted}}},
           {ints_attr("dim", {c.rank(weighted) - 1}), bool_attr("keep_dim", false),
            bool_attr("reduce_all", c.rank(weighted) == 1)});
  return c.reshape(sums, {-1});
}

Status scatter_nd_node(NodeContext& c) {
  const std::string reduction = c.attr_string("reduction", "none");
  const std::string x = c.in(0);
  const std::string index = c.in(1);
  const std::string updates = c.in(2);
  const int64_t depth = c.extent(index, -1);
  const Dims dims = c.dims(x);
  if (depth < 1 || depth > c.rank(x)) return c.refuse("positions of unknown length");
  const std::string rows = rows_from_start(c, x, index);
  if (reduction == "add") {
    c.set(0, c.op("scatter_nd_add", {{"X", {x}}, {"Index", {rows}}, {"Updates", {updates}}}));
    return Ok();
  }
  if (reduction != "none") return c.refuse("the reduction " + reduction);
  if (!c.is_static(x)) return c.refuse("a replacement in a value of unknown extents");
  // Rows of the first axis are replaced by `scatter`: the axes of a position become one.
  std::vector<int64_t> row(dims.begin() + depth, dims.end());
  row.insert(row.begin(), -1);
  const std::string flat = c.op("scatter",
                                {{"X", {c.reshape(x, row)}},
                                 {"Ids", {flat_rows(c, rows, dims, depth)}},
                                 {"Updates", {c.reshape(updates, row)}}},
                                {bool_attr("overwrite", true)});
  c.set(0, c.reshape(flat, {dims.begin(), dims.end()}));
  return Ok();
}

Status non_zero_node(NodeContext& c) {
  const std::string x = c.in(0);
  if (c.rank(x) == 0) return c.refuse("the positions of a scalar");
  c.set(0, c.transpose(c.op("where_index", {{"Condition", {x}}}), {1, 0}));
  return Ok();
}

Status compress_node(NodeContext& c) {
  std::string x = c.in(0);
  const std::string condition = c.in(1);
  int64_t axis = 0;
  if (c.has_attr("axis"))
    axis = c.attr_axis("axis", 0, c.rank(x));
  else
    x = c.reshape(x, {-1});
  const std::string found = c.reshape(c.op("where_index", {{"Condition", {condition}}}), {-1});
  c.set(0, c.op("gather", {{"X", {x}}, {"Index", {found}}}, {int_attr("axis", axis)}));
  return Ok();
}

// Ids out of range make a row of "off" values.
Status one_hot_node(NodeContext& c) {
  const std::string ids = c.in(0);
  const auto depth = c.number(c.in(1));
  const std::string values = c.in(2);
  if (!depth || !(*depth >= 1) || *depth > 1 << 20)
    return c.refuse("a depth that the model computes");
  const auto classes = static_cast<int64_t>(*depth);
  const int64_t rank = c.rank(ids) + 1;
  const int64_t axis = c.attr_axis("axis", -1, rank);
  // Compared with 0, 1, ... along the new axis, which also is right for ids out of range.
  const std::string whole = c.cast(ids, DType::kInt64);
  const std::string depths = c.longs({classes}, {});
  const std::string counted =
      c.op("where", {{"Condition", {c.binary("less_than", whole, c.scalar(0, DType::kInt64))}},
                     {"X", {c.binary("elementwise_add", whole, depths)}},
                     {"Y", {whole}}});
  std::vector<int64_t> positions;
  for (int64_t i = 0; i < classes; ++i) positions.push_back(i);
  Dims dims(static_cast<size_t>(rank), 1);
  dims[static_cast<size_t>(axis)] = classes;
  const std::string is_on =
      c.binary("equal", c.unsqueeze(counted, {axis}), c.longs(positions, dims));
  const std::vector<std::string> all =
      c.broadcast({is_on, c.slice(values, 0, 1, 2), c.slice(values, 0, 0, 1)});
  c.set(0, c.op("where", {{"Condition", {all[0]}}, {"X", {all[1]}}, {"Y", {all[2]}}}));
  return Ok();
}

Status trilu_node(NodeContext& c) {
  const bool upper = c.attr_bool("upper", true);
  const std::string x = c.in(0);
  const std::vector<int64_t> k = c.has(1) ? c.fixed_ints(1, "diagonals") : std::vector<int64_t>{0};
  if (k.size() != 1 || c.rank(x) < 2) return c.refuse("a triangle of a vector");
  c.set(0, c.op("tril_triu", {{"X", {x}}},
                {int_attr("diagonal", near(k[0])), bool_attr("lower", !upper)}));
  return Ok();
}

}  // namespace

void add_index_nodes(NodeTable& table) {
  table["Slice"] = {slice_node, 1, 5};
  table["Gather"] = {gather_node, 2, 2};
  table["GatherElements"] = {gather_elements_node, 2, 2};
  table["GatherND"] = {gather_nd_node, 2, 2};
  table["ScatterElements"] = {scatter_elements_node, 3, 3};
  table["ScatterND"] = {scatter_nd_node, 3, 3};
  table["NonZero"] = {non_zero_node};
  table["Compress"] = {compress_node, 2, 2};
  table["OneHot"] = {one_hot_node, 3, 3};
  table["Trilu"] = {trilu_node, 1, 2};
}

}  // namespace millrace::interchange
