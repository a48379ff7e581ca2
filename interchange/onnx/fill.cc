// Constants.

#include <cmath>
#include <cstdlib>

#include "framework/base/text.h"
#include "interchange/onnx/op_context.h"

namespace millrace::interchange {
namespace {

// A number as text, or else the attribute `value`.
StatusOr<double> fill_value(OpContext& c, DType dtype) {
  const auto text = c.attr<std::string>("str_value");
  double value = c.attr<float>("value");
  if (!text.empty()) {
    char* end = nullptr;
    value = std::strtod(text.c_str(), &end);
    if (end != text.c_str() + text.size()) return c.refuse("the value '" + text + "'");
  }
  constexpr double kMostExact = 9007199254740992.0;
  if (dtype == DType::kInt64 && !(std::abs(value) < kMostExact))
    return c.refuse("an integer of 2^53 or above");
  return value;
}

std::string filled(OpContext& c, const std::string& dims, double value, DType dtype) {
  return c.node("Expand", {c.scalar(value, dtype), dims});
}

Status fill_constant(OpContext& c) {
  c.ignore({"force_cpu", "place_type", "shape"});
  const auto dtype = static_cast<DType>(c.attr<int32_t>("dtype"));
  if (onnx_type(dtype) == 0) return c.refuse("the element type of a constant");
  if (c.has("ShapeTensorList")) return c.refuse("a shape given as a list of tensors");
  if (c.has("ValueTensor")) return c.refuse("a value given as a tensor");
  const std::string dims = c.has("ShapeTensor") ? c.cast(c.in("ShapeTensor"), DType::kInt64)
                                                : c.graph().ints(c.ints("shape"));
  MILLRACE_ASSIGN_OR_RETURN(const double value, fill_value(c, dtype));
  c.set("Out", filled(c, dims, value, dtype));
  return Ok();
}

Status fill_batch_size_like(OpContext& c) {
  c.ignore({"force_cpu"});
  const std::vector<int64_t> dims = c.ints("shape");
  const auto from = c.attr<int64_t>("input_dim_idx");
  const auto to = static_cast<size_t>(c.attr<int64_t>("output_dim_idx"));
  const auto dtype = static_cast<DType>(c.attr<int32_t>("dtype"));
  const std::string input = c.in("Input");
  if (!c.lod("Input").empty() && from == 0) return c.refuse("the batch size of an input with LoD");
  std::vector<std::string> parts;
  if (to > 0) parts.push_back(c.graph().ints({dims.begin(), dims.begin() + static_cast<long>(to)}));
  parts.push_back(c.extent(input, from));
  if (to + 1 < dims.size())
    parts.push_back(c.graph().ints({dims.begin() + static_cast<long>(to) + 1, dims.end()}));
  MILLRACE_ASSIGN_OR_RETURN(const double value, fill_value(c, dtype));
  c.set("Out", filled(c, c.node("Concat", parts, {{"axis", int64_t{0}}}), value, dtype));
  return Ok();
}

Status fill_like(OpContext& c) {
  const auto wanted = c.op().type() == "fill_any_like" ? c.attr<int32_t>("dtype") : -1;
  const double value = c.op().type() == "fill_any_like" ? c.attr<float>("value") : 0;
  const DType dtype = wanted < 0 ? c.dtype("X") : static_cast<DType>(wanted);
  c.set("Out", filled(c, c.shape(c.in("X")), value, dtype));
  return Ok();
}

// Each element type has a list of its own; the others say nothing.
Status assign_value(OpContext& c) {
  const auto dtype = static_cast<DType>(c.attr<int32_t>("dtype"));
  c.ignore({"bool_values", "int32_values", "int64_values", "fp32_values", "fp64_values"});
  const std::vector<int64_t> dims = c.ints("shape");
  int64_t count = 1;
  for (const int64_t dim : dims) count *= dim;
  const auto fits = [&](size_t values) { return static_cast<int64_t>(values) == count; };
  std::string constant;
  if (dtype == DType::kInt64) {
    const std::vector<int64_t> values = c.ints("int64_values");
    if (fits(values.size())) constant = c.graph().ints(values, dims);
  } else {
    std::vector<double> values;
    if (dtype == DType::kFloat32) {
      for (const float v : c.attr<std::vector<float>>("fp32_values")) values.push_back(v);
    } else if (dtype == DType::kFloat64) {
      values = c.attr<std::vector<double>>("fp64_values");
    } else if (dtype == DType::kInt32 || dtype == DType::kBool) {
      for (const int64_t v : c.ints(dtype == DType::kBool ? "bool_values" : "int32_values"))
        values.push_back(static_cast<double>(v));
    } else {
      return c.refuse("values of this element type");
    }
    if (fits(values.size())) constant = c.graph().numbers(values, dtype, dims);
  }
  if (constant.empty()) return c.refuse("another number of values than the shape has");
  c.set("Out", c.node("Identity", {constant}));
  return Ok();
}

Status range(OpContext& c) {
  const auto scalar = [&](const char* slot) { return c.reshape(c.in(slot), {}); };
  const std::string start = scalar("Start");
  const std::string end = scalar("End");
  c.set("Out", c.node("Range", {start, end, scalar("Step")}));
  return Ok();
}

}  // namespace

void add_fill_ops(ConverterTable& table) {
  table["fill_constant"] = fill_constant;
  table["fill_constant_batch_size_like"] = fill_batch_size_like;
  table["fill_any_like"] = table["fill_zeros_like"] = fill_like;
  table["assign_value"] = assign_value;
  table["range"] = range;
}

}  // namespace millrace::interchange
