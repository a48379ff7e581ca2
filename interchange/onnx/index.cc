// Ops that select elements by position.

#include <limits>

#include "interchange/onnx/op_context.h"

namespace millrace::interchange {
namespace {

// Bounds of a slice: a tensor, a list of tensors or an attribute.
std::string bounds(OpContext& c, llvm::StringRef tensor, llvm::StringRef list,
                   llvm::StringRef attr) {
  c.ignore({attr});
  if (c.has(list)) {
    std::vector<std::string> parts;
    for (const std::string& value : c.ins(list))
      parts.push_back(c.cast(c.reshape(value, {1}), DType::kInt64));
    if (c.has(tensor)) c.ins(tensor);
    return c.node("Concat", parts, {{"axis", int64_t{0}}});
  }
  if (c.has(tensor)) return c.cast(c.reshape(c.in(tensor), {-1}), DType::kInt64);
  return c.graph().ints(c.ints(attr));
}

Status slice_op(OpContext& c) {
  const bool is_strided = c.op().type() == "strided_slice";
  const int64_t rank = c.rank("Input");
  c.ignore({"infer_flags"});
  std::vector<int64_t> axes = c.ints("axes");
  for (int64_t& axis : axes) axis = axis < 0 ? axis + rank : axis;
  std::vector<std::string> inputs = {
      c.in("Input"), bounds(c, "StartsTensor", "StartsTensorList", "starts"),
      bounds(c, "EndsTensor", "EndsTensorList", "ends"), c.graph().ints(axes)};
  if (is_strided) {
    for (const int64_t stride : c.ints("strides"))
      if (stride < 0) return c.refuse("a slice with a negative stride");
    inputs.push_back(bounds(c, "StridesTensor", "StridesTensorList", "strides"));
  }
  const std::string out = c.node("Slice", inputs);
  std::vector<int64_t> dropped = c.ints("decrease_axis");
  for (int64_t& axis : dropped) axis = axis < 0 ? axis + rank : axis;
  // Old programs keep one axis where all are dropped.
  const bool keep_one =
      static_cast<int64_t>(dropped.size()) == rank && rank > 0 && c.out_dims("Out").size() == 1;
  c.set("Out", keep_one ? c.reshape(out, {1}) : c.squeeze(out, dropped));
  return Ok();
}

Status gather(OpContext& c) {
  c.ignore({"overwrite", "axis"});
  if (c.has("Axis")) return c.refuse("gather along an axis given as a tensor");
  const int64_t axis = c.axis("axis", c.rank("X"));
  std::string index = c.in("Index");
  if (c.rank("Index") == 2) index = c.squeeze(index, {1});
  c.set("Out", c.node("Gather", {c.in("X"), index}, {{"axis", axis}}));
  return Ok();
}

Status gather_nd(OpContext& c) {
  c.set("Out", c.node("GatherND", {c.in("X"), c.cast(c.in("Index"), DType::kInt64)}));
  return Ok();
}

Status index_select(OpContext& c) {
  c.set("Out",
        c.node("Gather", {c.in("X"), c.in("Index")}, {{"axis", c.axis("dim", c.rank("X"))}}));
  return Ok();
}

Status take_along_axis(OpContext& c) {
  c.set("Result", c.node("GatherElements", {c.in("Input"), c.in("Index")},
                         {{"axis", c.axis("Axis", c.rank("Input"))}}));
  return Ok();
}

Status where(OpContext& c) {
  c.set("Out", c.node("Where", {c.in("Condition"), c.in("X"), c.in("Y")}));
  return Ok();
}

Status where_index(OpContext& c) {
  if (c.rank("Condition") == 0) return c.refuse("the positions of a scalar");
  c.set("Out", c.transpose(c.node("NonZero", {c.in("Condition")}), {1, 0}));
  return Ok();
}

Status one_hot(OpContext& c) {
  const bool is_v2 = c.op().type() == "one_hot_v2";
  if (c.has("depth_tensor")) return c.refuse("one_hot with a depth given as a tensor");
  // ONNX writes a row of zeros for an id that is out of range, where the original fails.
  c.ignore({"allow_out_of_range"});
  const auto dtype = static_cast<DType>(c.attr<int32_t>("dtype"));
  std::string ids = c.in("X");
  if (!is_v2) ids = c.squeeze(ids, {c.rank("X") - 1});
  // Negative ids count from the end in ONNX.
  if (c.attr<bool>("allow_out_of_range")) return c.refuse("one_hot with allow_out_of_range");
  c.set("Out", c.node("OneHot", {ids, c.graph().ints({c.attr<int64_t>("depth")}, {}),
                                 c.graph().numbers({0, 1}, dtype, {2})}));
  return Ok();
}

Status tril_triu(OpContext& c) {
  if (c.rank("X") < 2) return c.refuse("a triangle of a vector");
  c.set("Out", c.node("Trilu", {c.in("X"), c.graph().ints({c.attr<int64_t>("diagonal")}, {})},
                      {{"upper", int64_t{!c.attr<bool>("lower")}}}));
  return Ok();
}

}  // namespace

void add_index_ops(ConverterTable& table) {
  table["slice"] = table["strided_slice"] = slice_op;
  table["gather"] = gather;
  table["gather_nd"] = gather_nd;
  table["index_select"] = index_select;
  table["take_along_axis"] = take_along_axis;
  table["where"] = where;
  table["where_index"] = where_index;
  table["one_hot"] = table["one_hot_v2"] = one_hot;
  table["tril_triu"] = tril_triu;
}

}  // namespace millrace::interchange
