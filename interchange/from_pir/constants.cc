// Constants, lists of tensors, and ranges.

#include <cmath>

#include <fmt/format.h>

#include "interchange/from_pir/op_context.h"

namespace millrace::interchange::pir {
namespace {

Status full(ImportContext& c) {
  c.ignore({"place"});
  const auto dims = c.attr<std::vector<int64_t>>("shape");
  Constant constant;
  constant.dims = Dims(dims.begin(), dims.end());
  constant.value = c.attr<double>("value");
  constant.dtype = static_cast<DType>(c.dtype_attr("dtype"));
  const bool is_float = constant.dtype == DType::kFloat32 || constant.dtype == DType::kFloat64 ||
                        constant.dtype == DType::kFloat16 || constant.dtype == DType::kBfloat16;
  if (!std::isfinite(constant.value) && !is_float) return c.refuse("an integer that is not finite");
  c.set(0, std::move(constant));
  return Ok();
}

Status full_int_array(ImportContext& c) {
  c.ignore({"place"});
  Constant constant;
  constant.is_list = true;
  constant.integers = c.attr<std::vector<int64_t>>("value");
  constant.dtype = static_cast<DType>(c.dtype_attr("dtype"));
  c.set(0, std::move(constant));
  return Ok();
}

Status combine(ImportContext& c) {
  VarList ids;
  for (size_t k = 0; k < c.count(); ++k) {
    if (!c.has(k)) return c.refuse("a list with an absent tensor");
    (void)c.in(k);
    ids.push_back(c.source().inputs[k]);
  }
  c.set(0, std::move(ids));
  return Ok();
}

// Takes a list apart.
Status split_list(ImportContext& c) {
  const std::vector<std::string> vars = c.list(0);
  if (c.is_ok() && vars.size() != c.source().results.size())
    return c.refuse("another number of results than the list has tensors");
  for (size_t k = 0; k < vars.size(); ++k) c.set(k, vars[k]);
  return Ok();
}

Status full_like(ImportContext& c) {
  c.ignore({"place"});
  const std::string x = c.in(0);
  const double value = c.number(1, "the value");
  const int32_t dtype = c.dtype_attr("dtype");
  Op& op = c.append("fill_any_like");
  op.set_input("X", x);
  c.set_attr(op, "value", AttrValue::of_float(static_cast<float>(value)));
  c.set_attr(op, "dtype", AttrValue::of_int(dtype));
  c.add_result(op, "Out", 0);
  c.finish_op(op);
  return Ok();
}

Status full_with_tensor(ImportContext& c) {
  const std::string value = c.in(0);
  const std::string shape = c.in(1);
  const int32_t dtype = c.dtype_attr("dtype");
  Op& op = c.append("fill_constant");
  op.set_input("ValueTensor", value).set_input("ShapeTensor", shape);
  c.set_attr(op, "dtype", AttrValue::of_int(dtype));
  c.add_result(op, "Out", 0);
  c.finish_op(op);
  return Ok();
}

Status full_batch_size_like(ImportContext& c) {
  c.ignore({"place"});
  const std::string x = c.in(0);
  const auto value = static_cast<float>(c.attr<double>("value"));
  Op& op = c.append("fill_constant_batch_size_like");
  op.set_input("Input", x);
  c.set_attr(op, "shape", AttrValue::of_longs(c.attr<std::vector<int64_t>>("shape")));
  c.set_attr(op, "dtype", AttrValue::of_int(c.dtype_attr("dtype")));
  c.set_attr(op, "value", AttrValue::of_float(value));
  c.set_attr(op, "input_dim_idx", AttrValue::of_long(c.attr<int64_t>("input_dim_idx")));
  c.set_attr(op, "output_dim_idx", AttrValue::of_long(c.attr<int64_t>("output_dim_idx")));
  c.add_result(op, "Out", 0);
  c.finish_op(op);
  return Ok();
}

// The list of the element type holds the values.
Status assign_value(ImportContext& c) {
  c.ignore({"place"});
  const int32_t number = c.dtype_attr("dtype");
  const auto dtype = static_cast<DType>(number);
  Op& op = c.append("assign_value");
  if (dtype == DType::kFloat32 || dtype == DType::kFloat64) {
    const auto values = c.attr<std::vector<double>>("values");
    if (dtype == DType::kFloat64)
      c.set_attr(op, "fp64_values", AttrValue::of_float64s(values));
    else
      c.set_attr(op, "fp32_values", AttrValue::of_floats({values.begin(), values.end()}));
  } else if (dtype == DType::kInt32 || dtype == DType::kInt64 || dtype == DType::kBool) {
    const char* const name = dtype == DType::kInt32   ? "int32_values"
                             : dtype == DType::kInt64 ? "int64_values"
                                                      : "bool_values";
    c.set_attr(op, name, AttrValue::of_longs(c.attr<std::vector<int64_t>>("values")));
  } else {
    return c.refuse("values of an element type that the op does not have");
  }
  c.set_attr(op, "shape", AttrValue::of_longs(c.attr<std::vector<int64_t>>("shape")));
  c.set_attr(op, "dtype", AttrValue::of_int(number));
  c.add_result(op, "Out", 0);
  c.finish_op(op);
  return Ok();
}

// As release 3 makes it of constants like paddle.to_tensor(2.5).
Status assign_value_in_place(ImportContext& c) {
  if (c.constant(0) == nullptr) return c.refuse("values for a tensor that the program computes");
  if (c.source().results[0].id == 0) return c.refuse("values without a result");
  MILLRACE_RETURN_IF_ERROR(assign_value(c));
  c.overwrite(0, 0);
  return Ok();
}

// A constant bound has the type of the op, whichever type the file gives it.
std::string bound(ImportContext& c, size_t k, int32_t dtype) {
  const Constant* const constant = c.constant(k);
  const bool is_float = dtype == static_cast<int32_t>(DType::kFloat32);
  if (constant == nullptr || constant->is_list || !is_float || constant->dtype == DType::kFloat32)
    return c.in(k);
  const double value = c.number(k, "a bound");
  return c.add("fill_constant", {},
               {{"shape", AttrValue::of_longs({1})},
                {"dtype", AttrValue::of_int(dtype)},
                {"value", AttrValue::of_float(static_cast<float>(value))},
                {"str_value", AttrValue::of_string(fmt::format("{}", value))}});
}

// Extents as int64. Our op has int32.
Status shape64(ImportContext& c) {
  const std::string x = c.in(0);
  const std::string dims = c.add("shape", {{"Input", x}}, {});
  Op& op = c.append("cast");
  op.set_input("X", dims);
  c.set_attr(op, "in_dtype", AttrValue::of_int(static_cast<int32_t>(DType::kInt32)));
  c.set_attr(op, "out_dtype", AttrValue::of_int(static_cast<int32_t>(DType::kInt64)));
  c.add_result(op, "Out", 0);
  c.finish_op(op);
  return Ok();
}

Status arange(ImportContext& c) {
  c.ignore({"place"});
  const int32_t dtype = c.dtype_attr("dtype");
  const std::string start = bound(c, 0, dtype);
  const std::string end = bound(c, 1, dtype);
  const std::string step = bound(c, 2, dtype);
  Op& op = c.append("range");
  op.set_input("Start", start).set_input("End", end).set_input("Step", step);
  c.add_result(op, "Out", 0);
  c.finish_op(op);
  return Ok();
}

Status triangle(ImportContext& c) {
  const std::string x = c.in(0);
  Op& op = c.append("tril_triu");
  op.set_input("X", x);
  c.set_attr(op, "diagonal", AttrValue::of_long(c.attr<int64_t>("diagonal")));
  c.set_attr(op, "lower", AttrValue::of_bool(c.name() == "tril"));
  c.add_result(op, "Out", 0);
  c.finish_op(op);
  return Ok();
}

}  // namespace

void add_constant_imports(ImportConverters& table) {
  table["full"] = full;
  table["full_int_array"] = full_int_array;
  table["full_like"] = full_like;
  table["full_with_tensor"] = full_with_tensor;
  table["full_batch_size_like"] = full_batch_size_like;
  table["builtin.combine"] = combine;
  table["builtin.split"] = split_list;
  table["assign_value"] = assign_value;
  table["assign_value_"] = assign_value_in_place;
  table["arange"] = arange;
  table["shape64"] = shape64;
  table["tril"] = table["triu"] = triangle;
}

}  // namespace millrace::interchange::pir
