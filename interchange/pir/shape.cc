// Ops that move, join and split elements without computing.

#include <algorithm>

#include "interchange/pir/rows.h"

namespace millrace::interchange::pir {
namespace {

constexpr Row kShapeRows[] = {
    {"assign", "assign", "X", "", "Out"},
    {"concat", "concat", "X* @axis:i32|AxisTensor", "", "Out"},
    {"crop_tensor", "crop", "X @shape:i64s|Shape|ShapeTensor* @offsets:i64s|Offsets|OffsetsTensor*",
     "", "Out"},
    {"expand", "tile", "X @expand_times:i64s|ExpandTimes|expand_times_tensor*", "", "Out"},
    {"expand_v2", "expand", "X @shape:i64s|Shape|expand_shapes_tensor*", "", "Out"},
    {"flatten_contiguous_range", "flatten", "X", "start_axis:i32 stop_axis:i32", "Out"},
    {"flip", "flip", "X", "axis:i32s", "Out"},
    {"is_empty", "is_empty", "X", "", "Out"},
    {"meshgrid", "meshgrid", "X*", "", "Out*"},
    {"pad", "pad", "X @pad_value:f32", "paddings:i32s", "Out"},
    {"pad3d", "pad3d", "X @paddings:i64s|Paddings", "mode:str pad_value<value:f64 data_format:str",
     "Out"},
    {"pixel_shuffle", "pixel_shuffle", "X", "upscale_factor:i32 data_format:str", "Out"},
    {"reshape", "reshape", "X @shape:i64s|ShapeTensor*|Shape", "", "Out"},
    {"reshape2", "reshape", "X @shape:i64s|ShapeTensor*|Shape", "", "Out"},
    {"reverse", "reverse", "X @axis:i64s", "", "Out"},
    {"roll", "roll", "X @shifts:i64s|ShiftsTensor", "axis:i64s", "Out"},
    {"shuffle_channel", "shuffle_channel", "X", "group:i32", "Out"},
    {"squeeze", "squeeze", "X @axes:i64s", "", "Out"},
    {"squeeze2", "squeeze", "X @axes:i64s", "", "Out"},
    {"stack", "stack", "X*", "axis:i32", "Y"},
    {"temporal_shift", "temporal_shift", "X", "seg_num:i32 shift_ratio:f32 data_format:str", "Out"},
    {"tile", "tile", "X @repeat_times:i64s|RepeatTimes|repeat_times_tensor*", "", "Out"},
    {"transpose", "transpose", "X", "perm<axis:i32s !data_format", "Out"},
    {"transpose2", "transpose", "X", "perm<axis:i32s !data_format", "Out"},
    {"unbind", "unbind", "X", "axis:i32", "Out*"},
    {"unfold", "unfold", "X", "kernel_sizes:i32s strides:i32s paddings:i32s dilations:i32s", "Y"},
    {"unsqueeze", "unsqueeze", "X @axes:i64s|AxesTensorList*|AxesTensor", "", "Out"},
    {"unsqueeze2", "unsqueeze", "X @axes:i64s|AxesTensorList*|AxesTensor", "", "Out"},
    {"unstack", "unstack", "X", "axis:i32 num:i32", "Y*"},
};

// A matrix: the dims before `axis` and those from it on, joined.
Status flatten(OpContext& c) {
  const int64_t rank = c.rank("X");
  const int64_t axis = c.axis("axis", rank);
  Value value = c.in("X");
  if (axis == 0 || axis == rank) {
    value = c.reshape(value, axis == 0 ? std::vector<int64_t>{1, -1} : std::vector<int64_t>{-1, 1});
  } else {
    if (rank - axis > 1) value = c.flatten(value, axis, rank - 1);
    if (axis > 1) value = c.flatten(value, 0, axis - 1);
  }
  c.set("Out", value);
  return Ok();
}

Status split(OpContext& c) {
  if (c.has("SectionsTensorList")) return c.refuse("split with sections as tensors");
  const Value x = c.in("X");
  const std::vector<int64_t> sections = c.ints("sections");
  c.ignore({"num", "axis"});
  // With sections and a negative axis, the kernel of the original returns wrong elements.
  const Value axis = c.has("AxisTensor")
                         ? c.in("AxisTensor")
                         : c.full(static_cast<double>(c.axis("axis", c.rank("X"))), DType::kInt32);
  std::vector<TensorType> types;
  const size_t outputs = c.op().output("Out").size();
  for (size_t k = 0; k < outputs; ++k) types.push_back(c.out_type("Out", k));
  const Value result =
      sections.empty()
          ? c.nodes("split_with_num", {x, axis}, {of_i32("num", static_cast<int64_t>(outputs))},
                    {results_of(types)})[0]
          : c.nodes("split", {x, c.int_list(sections), axis}, {}, {results_of(types)})[0];
  const std::vector<Value> parts = c.parts(result);
  for (size_t k = 0; k < parts.size(); ++k) c.set("Out", parts[k], k);
  return Ok();
}

// Positions from a list of tensors, a tensor, or an attribute, in this order.
Value positions(OpContext& c, const char* list, const char* tensor, const char* attr) {
  c.ignore({attr});
  const bool has_list = c.has(list);
  if (c.has(tensor)) {
    Value value = c.in(tensor);
    if (!has_list) return value;
  }
  return has_list ? c.list(c.ins(list)) : c.int_list(c.ints(attr));
}

Status slice(OpContext& c) {
  const Value x = c.in("Input");
  const Value starts = positions(c, "StartsTensorList", "StartsTensor", "starts");
  const Value ends = positions(c, "EndsTensorList", "EndsTensor", "ends");
  c.set("Out", c.node("slice", {x, starts, ends}, slice_attrs(c), c.out_type("Out")));
  return Ok();
}

Status strided_slice(OpContext& c) {
  const std::vector<int64_t> decreased = c.ints("decrease_axis");
  c.ignore({"infer_flags"});
  const Value x = c.in("Input");
  const Value starts = positions(c, "StartsTensorList", "StartsTensor", "starts");
  const Value ends = positions(c, "EndsTensorList", "EndsTensor", "ends");
  const Value strides = positions(c, "StridesTensorList", "StridesTensor", "strides");
  TensorType type = c.out_type("Out");
  for (const int64_t axis : decreased) type.dims.insert(type.dims.begin() + axis, 1);
  Value out =
      c.node("strided_slice", {x, starts, ends, strides}, {of_i32s("axes", c.ints("axes"))}, type);
  if (!decreased.empty()) out = c.squeeze(out, decreased);
  c.set("Out", out);
  return Ok();
}

// pad2d lists (top, bottom, left, right); pad3d (left, right, top, bottom, front, back).
Status pad2d(OpContext& c) {
  if (c.has("Paddings")) return c.refuse("paddings given as a tensor");
  const std::vector<int64_t> pairs = c.ints("paddings");
  if (pairs.size() != 4) return c.refuse("paddings of another length");
  auto mode = c.attr<std::string>("mode");
  if (mode == "edge") mode = "replicate";
  const bool is_last = c.attr<std::string>("data_format") == "NHWC";
  const int64_t depth = is_last ? 1 : 2;
  const TensorType type = c.out_type("Out");
  TensorType deep = type;
  deep.dims.insert(deep.dims.begin() + depth, 1);
  const Value x = c.unsqueeze(c.in("X"), {depth});
  const Value padded =
      c.node("pad3d", {x, c.int_list({pairs[2], pairs[3], pairs[0], pairs[1], 0, 0})},
             {of_string("mode", mode), of_f64("pad_value", c.attr<float>("pad_value")),
              of_string("data_format", is_last ? "NDHWC" : "NCDHW")},
             deep);
  c.set("Out", c.squeeze(padded, {depth}));
  return Ok();
}

// partial_concat and partial_sum, which lose the LoD in release 3 and read a negative start in
// another way.
Status partial(OpContext& c) {
  auto start = c.attr<int64_t>("start_index");
  const Dims dims = c.dims("X");
  if (start < 0) {
    if (dims.size() < 2 || dims[1] < 0)
      return c.refuse("a negative start_index with an unknown number of columns");
    start += dims[1];
  }
  const Value joined =
      c.node(c.op().type().str(), {c.list(c.ins("X"))},
             {of_i32("start_index", start), of_i32("length", c.attr<int64_t>("length"))},
             c.out_type("Out"));
  c.set("Out", c.with_lod_of("X", joined));
  return Ok();
}

// The list has precedence in the original if all its extents are known, in release 3 the operand.
Status expand_as(OpContext& c) {
  const std::vector<int64_t> dims = c.ints("target_shape");
  const Value y = c.in_or_none("Y");
  const bool is_stated =
      !dims.empty() && std::all_of(dims.begin(), dims.end(), [](int64_t dim) { return dim >= 0; });
  c.set("Out", c.node("expand_as", {c.in("X"), is_stated ? Value{} : y},
                      {of_i64s("target_shape", dims)}, c.out_type("Out")));
  return Ok();
}

// The extents of the second operand, or those of the attribute; offsets likewise.
Status crop(OpContext& c) {
  const Value x = c.in("X");
  const TensorType type = c.out_type("Out");
  c.ignore({"shape", "offsets"});
  const Value dims =
      c.has("Y") ? c.node("shape", {c.in("Y")}, {}, {.dtype = DType::kInt32, .dims = {c.rank("Y")}})
                 : c.int_list(c.ints("shape"));
  const Value offsets = c.has("Offsets") ? c.in("Offsets") : c.int_list(c.ints("offsets"));
  c.set("Out", c.node("crop", {x, dims, offsets}, {}, type));
  return Ok();
}

}  // namespace

std::vector<Attr> slice_attrs(OpContext& c) {
  const std::vector<int64_t> axes = c.ints("axes");
  std::vector<int64_t> flags = c.ints("infer_flags");
  if (flags.empty()) flags.assign(axes.size(), 1);
  return {of_i64s("axes", axes), of_i64s("infer_flags", flags),
          of_i64s("decrease_axis", c.ints("decrease_axis"))};
}

void add_shape_ops(Converters& table) {
  for (const Row& row : kShapeRows) table.rows[row.type] = &row;
  table.functions["flatten"] = table.functions["flatten2"] = flatten;
  table.functions["expand_as_v2"] = expand_as;
  table.functions["partial_concat"] = table.functions["partial_sum"] = partial;
  table.functions["split"] = split;
  table.functions["slice"] = slice;
  table.functions["strided_slice"] = strided_slice;
  table.functions["pad2d"] = pad2d;
  table.functions["crop"] = crop;
}

}  // namespace millrace::interchange::pir
