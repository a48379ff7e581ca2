// Constants and ranges.

#include <cmath>

#include "interchange/from_onnx/node_context.h"

namespace millrace::interchange {
namespace {

Status constant_node(NodeContext& c) {
  if (const ::onnx::TensorProto* const value = c.attr_tensor("value")) {
    MILLRACE_ASSIGN_OR_RETURN(Tensor tensor, c.read_tensor(*value));
    c.set(0, c.constant_var(std::move(tensor)));
    return Ok();
  }
  if (c.has_attr("value_int")) {
    c.set(0, c.longs({c.attr_int("value_int", 0)}, {}));
  } else if (c.has_attr("value_ints")) {
    c.set(0, c.longs(c.attr_ints("value_ints")));
  } else if (c.has_attr("value_float")) {
    c.set(0, c.scalar(static_cast<double>(c.attr_float("value_float", 0)), DType::kFloat32));
  } else if (c.has_attr("value_floats")) {
    const std::vector<float> values = c.attr_floats("value_floats");
    c.set(0, c.numbers({values.begin(), values.end()}, DType::kFloat32,
                       {static_cast<int64_t>(values.size())}));
  } else {
    return c.refuse("a constant that is no dense tensor of numbers");
  }
  return Ok();
}

Status constant_of_shape_node(NodeContext& c) {
  const std::string target = c.in(0);
  double value = 0;
  DType dtype = DType::kFloat32;
  if (const ::onnx::TensorProto* const stated = c.attr_tensor("value")) {
    MILLRACE_ASSIGN_OR_RETURN(Tensor tensor, c.read_tensor(*stated));
    if (tensor.numel() != 1) return c.refuse("a value that is not one element");
    dtype = tensor.dtype();
    const auto number = c.number(c.constant_var(std::move(tensor)));
    if (!number) return c.refuse("a value of this element type");
    value = *number;
  }
  if (static_cast<double>(static_cast<float>(value)) != value && value == value)
    return c.refuse("a value that is no f32");
  std::vector<SlotVars> inputs;
  std::vector<int64_t> dims;
  if (const auto known = c.ints(target))
    dims = *known;
  else if (c.extent(target, 0) != 0)
    inputs.push_back({"ShapeTensor", {target}});
  const std::string out = c.op("fill_constant", inputs,
                               {ints_attr("shape", dims), dtype_attr("dtype", dtype),
                                float_attr("value", static_cast<float>(value))});
  if (const KnownElements* const known = c.known(target)) {
    Dims found;
    for (const auto& element : *known) found.push_back(element ? to_int64(*element) : -1);
    c.refine(out, found);
  }
  c.set(0, out);
  return Ok();
}

Status range_node(NodeContext& c) {
  const std::string start = c.in(0);
  const std::string limit = c.in(1);
  const std::string delta = c.in(2);
  const auto first = c.number(start);
  const auto last = c.number(limit);
  const auto step = c.number(delta);
  if (first && last && step && c.dtype(start) == DType::kInt64) {
    constexpr double kExact = 9007199254740992.0;  // larger integers are no f64
    if (*step == 0 || std::abs(*first) > kExact || std::abs(*last) > kExact ||
        std::abs(*step) > kExact || (*last - *first) / *step > 1 << 20)
      return c.refuse("a step of 0, or more than a million numbers");
    std::vector<int64_t> values;
    for (auto at = static_cast<int64_t>(*first);
         *step > 0 ? at < static_cast<int64_t>(*last) : at > static_cast<int64_t>(*last);
         at += static_cast<int64_t>(*step))
      values.push_back(at);
    c.set(0, c.longs(values));
    return Ok();
  }
  c.set(0, c.op("range", {{"Start", {c.reshape(start, {1})}},
                          {"End", {c.reshape(limit, {1})}},
                          {"Step", {c.reshape(delta, {1})}}}));
  return Ok();
}

Status eye_like_node(NodeContext& c) {
  const std::string x = c.in(0);
  const int64_t k = c.attr_int("k", 0);
  DType dtype = c.dtype(x);
  if (c.has_attr("dtype")) {
    MILLRACE_ASSIGN_OR_RETURN(dtype, dtype_from_onnx(static_cast<int32_t>(c.attr_int("dtype", 1))));
  }
  if (c.rank(x) != 2 || !c.is_static(x) || k != 0)
    return c.refuse("a diagonal other than the main one, or unknown extents");
  c.set(0, c.op("eye", {},
                {int_attr("num_rows", c.extent(x, 0)), int_attr("num_columns", c.extent(x, 1)),
                 dtype_attr("dtype", dtype)}));
  return Ok();
}

}  // namespace

void add_fill_nodes(NodeTable& table) {
  table["Constant"] = {constant_node, 0, 0};
  table["ConstantOfShape"] = {constant_of_shape_node};
  table["Range"] = {range_node, 3, 3};
  table["EyeLike"] = {eye_like_node};
}

}  // namespace millrace::interchange
