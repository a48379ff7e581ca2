// Constants and ranges.

#include <cmath>

#include "interchange/pir/rows.h"

namespace millrace::interchange::pir {
namespace {

constexpr Row kFillRows[] = {
    {"diag_v2", "diag", "X", "offset:i32 padding_value:f32", "Out"},
    {"eye", "eye", "@num_rows:i64 @num_columns:i64", "dtype:dtype place", "Out"},
    {"fill_diagonal", "fill_diagonal", "X", "value:f32 offset:i32 wrap:bool", "Out"},
    {"gaussian_random", "gaussian", "@shape:i64s|ShapeTensor|ShapeTensorList*",
     "mean:f32 std:f32 seed:i32 dtype:dtype place", "Out"},
    {"linspace", "linspace", "Start Stop Num", "dtype:dtype place", "Out"},
    {"randint", "randint", "@shape:i64s|ShapeTensor|ShapeTensorList*",
     "low:i32 high:i32 dtype:dtype place", "Out"},
    {"randperm", "randperm", "", "n:i32 dtype:dtype place", "Out"},
    {"shape", "shape", "Input", "", "Out"},
    {"size", "numel", "Input", "", "Out"},
    {"uniform_random", "uniform", "@shape:i64s|ShapeTensor|ShapeTensorList* @min:f32 @max:f32",
     "dtype:dtype seed:i32 place", "Out"},
    {"uniform_random_batch_size_like", "uniform_random_batch_size_like", "Input",
     "shape:i32s input_dim_idx:i32 output_dim_idx:i32 min:f32 max:f32 seed:i32 diag_num:i32 "
     "diag_step:i32 diag_val:f32 dtype:dtype",
     "Out"},
};

// The text, where there is one, has more digits than the number.
StatusOr<double> filled_value(OpContext& c) {
  const auto text = c.attr<std::string>("str_value");
  const auto number = c.attr<float>("value");
  if (text.empty()) return static_cast<double>(number);
  if (text == "inf" || text == "-inf" || text == "nan") return std::stod(text);
  double value = 0;
  if (llvm::StringRef(text).getAsDouble(value)) return c.refuse("the value '" + text + "'");
  return value;
}

Status fill_constant(OpContext& c) {
  MILLRACE_ASSIGN_OR_RETURN(const double value, filled_value(c));
  c.ignore({"force_cpu", "place_type", "shape", "dtype"});
  const TensorType type = c.out_type("Out");
  if (!has_type(type.dtype)) return c.refuse("an element type that PIR does not have");
  if (type.dtype == DType::kInt64 && std::abs(value) > 9e15)
    return c.refuse("an integer above 2^53");
  const bool has_list = c.has("ShapeTensorList");
  if (!c.has("ShapeTensor") && !has_list && !c.has("ValueTensor")) {
    c.set("Out", c.full(value, type.dtype, c.ints("shape"), /*on_host=*/false));
    return Ok();
  }
  Value dims = c.has("ShapeTensor") ? c.in("ShapeTensor") : c.int_list(c.ints("shape"));
  if (has_list && c.has("ShapeTensor")) {
    c.ins("ShapeTensorList");
  } else if (has_list) {
    std::vector<Value> parts;
    for (const Value& part : c.ins("ShapeTensorList"))
      parts.push_back(c.cast(c.reshape(part, {1}), DType::kInt64));
    dims = c.node("concat", {c.list(parts), c.full(0, DType::kInt32)}, {},
                  {.dtype = DType::kInt64, .dims = {static_cast<int64_t>(parts.size())}});
  }
  const Value filled = c.has("ValueTensor") ? c.in("ValueTensor")
                                            : c.full(value, type.dtype, {1}, /*on_host=*/false);
  c.set("Out", c.node("full_with_tensor", {filled, dims}, {of_dtype("dtype", type.dtype)}, type));
  return Ok();
}

Status fill_like_batch(OpContext& c) {
  MILLRACE_ASSIGN_OR_RETURN(const double value, filled_value(c));
  c.ignore({"force_cpu", "dtype"});
  if (!std::isfinite(value)) return c.refuse("a value that is not finite");
  const TensorType type = c.out_type("Out");
  c.set("Out",
        c.node("full_batch_size_like", {c.in("Input")},
               {of_i32s("shape", c.ints("shape")), of_dtype("dtype", type.dtype),
                of_f32("value", value), of_i32("input_dim_idx", c.attr<int64_t>("input_dim_idx")),
                of_i32("output_dim_idx", c.attr<int64_t>("output_dim_idx")), of_place(false)},
               type));
  return Ok();
}

Status fill_like(OpContext& c) {
  c.ignore({"dtype", "value"});
  const double value = c.op().type() == "fill_any_like" ? c.attr<float>("value") : 0.0;
  const TensorType type = c.out_type("Out");
  const Value filled = c.node("full_like", {c.in("X"), c.full(value, DType::kFloat32)},
                              {of_dtype("dtype", type.dtype), of_place(false)}, type);
  c.set("Out", c.with_lod_of("X", filled));
  return Ok();
}

// The list of the element type holds the values.
Status assign_value(OpContext& c) {
  const auto dtype = static_cast<DType>(c.attr<int32_t>("dtype"));
  c.ignore({"bool_values", "fp32_values", "fp64_values", "int32_values", "int64_values"});
  Attr values;
  if (dtype == DType::kBool)
    values = of_i32s("values", c.ints("bool_values"));
  else if (dtype == DType::kInt32)
    values = of_i32s("values", c.ints("int32_values"));
  else if (dtype == DType::kInt64)
    values = of_i64s("values", c.ints("int64_values"));
  else if (dtype == DType::kFloat64)
    values = of_f64s("values", c.attr<std::vector<double>>("fp64_values"));
  else
    values = of_f32s("values", c.attr<std::vector<float>>("fp32_values"));
  if (values.json.find("inf") != std::string::npos || values.json.find("nan") != std::string::npos)
    return c.refuse("values that are not finite");
  c.set("Out", c.node("assign_value", {},
                      {of_i32s("shape", c.ints("shape")), of_dtype("dtype", dtype), values,
                       of_place(false)},
                      c.out_type("Out")));
  return Ok();
}

Status range(OpContext& c) {
  const TensorType type = c.out_type("Out");
  c.set("Out", c.node("arange", {c.in("Start"), c.in("End"), c.in("Step")},
                      {of_dtype("dtype", type.dtype), of_place(false)}, type));
  return Ok();
}

Status tril_triu(OpContext& c) {
  const std::string name = c.attr<bool>("lower") ? "tril" : "triu";
  c.set("Out", c.node(name, {c.in("X")}, {of_i32("diagonal", c.attr<int64_t>("diagonal"))},
                      c.out_type("Out")));
  return Ok();
}

}  // namespace

void add_fill_ops(Converters& table) {
  for (const Row& row : kFillRows) table.rows[row.type] = &row;
  table.functions["fill_constant"] = fill_constant;
  table.functions["fill_constant_batch_size_like"] = fill_like_batch;
  for (const char* type : {"fill_any_like", "fill_zeros_like", "fill_zeros_like2"})
    table.functions[type] = fill_like;
  table.functions["assign_value"] = assign_value;
  table.functions["range"] = range;
  table.functions["tril_triu"] = tril_triu;
}

}  // namespace millrace::interchange::pir
