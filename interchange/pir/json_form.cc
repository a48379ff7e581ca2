#include "interchange/pir/json_form.h"

#include <array>

#include <fmt/format.h>

#include "framework/base/json_writer.h"

namespace millrace::interchange::pir {
namespace {

struct TypeName {
  DType dtype;
  const char* tag;
  const char* text;
};

constexpr std::array<TypeName, 12> kTypeNames = {{
    {DType::kBool, "bool", "bool"},
    {DType::kUint8, "ui8", "uint8"},
    {DType::kInt8, "i8", "int8"},
    {DType::kInt16, "i16", "int16"},
    {DType::kInt32, "i32", "int32"},
    {DType::kInt64, "i64", "int64"},
    {DType::kFloat16, "f16", "float16"},
    {DType::kBfloat16, "bf16", "bfloat16"},
    {DType::kFloat32, "f32", "float32"},
    {DType::kFloat64, "f64", "float64"},
    {DType::kComplex64, "c64", "complex64"},
    {DType::kComplex128, "c128", "complex128"},
}};

const TypeName* find_type(DType dtype) {
  for (const TypeName& row : kTypeNames)
    if (row.dtype == dtype) return &row;
  return nullptr;
}

std::string tagged(const char* tag, const std::string& value) {
  return fmt::format(R"({{"#":"{}","D":{}}})", tag, value);
}

// A number that reads back to the same f64, with a point or an exponent.
std::string number(double value) {
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

std::string scalar_json(bool value) {
  return tagged("0.a_bool", value ? "true" : "false");
}

std::string list_json(const std::vector<std::string>& values) {
  return fmt::format("[{}]", fmt::join(values, ","));
}

template <typename List, typename ToJson>
Attr of_list(std::string name, const List& values, ToJson to_json) {
  std::vector<std::string> parts;
  parts.reserve(values.size());
  for (const auto& value : values) parts.push_back(to_json(value));
  return {std::move(name), tagged("0.a_array", list_json(parts))};
}

}  // namespace

bool has_type(DType dtype) {
  return find_type(dtype) != nullptr;
}

std::string dtype_text(DType dtype) {
  const TypeName* const found = find_type(dtype);
  return found == nullptr ? "" : found->text;
}

std::optional<DType> dtype_of_text(llvm::StringRef text) {
  for (const TypeName& row : kTypeNames)
    if (text == row.text) return row.dtype;
  return std::nullopt;
}

std::optional<DType> dtype_of_tag(llvm::StringRef tag) {
  if (!tag.consume_front("0.t_")) return std::nullopt;
  for (const TypeName& row : kTypeNames)
    if (tag == row.tag) return row.dtype;
  return std::nullopt;
}

std::string type_json(const TensorType& type) {
  const TypeName* const found = find_type(type.dtype);
  const std::string element =
      fmt::format(R"({{"#":"0.t_{}"}})", found == nullptr ? "" : found->tag);
  const std::string dims = fmt::format("[{}]", fmt::join(type.dims, ","));
  if (type.is_array)
    return fmt::format(R"({{"#":"1.t_dense_tensor_array","D":[{},{},"NCHW"]}})", element, dims);
  return fmt::format(R"({{"#":"0.t_dtensor","D":[{},{},"NCHW",[],0]}})", element, dims);
}

std::string types_json(const std::vector<TensorType>& types) {
  std::vector<std::string> parts;
  parts.reserve(types.size());
  for (const TensorType& type : types) parts.push_back(type_json(type));
  return tagged("0.t_vec", list_json(parts));
}

Attr of_bool(std::string name, bool value) {
  return {std::move(name), scalar_json(value)};
}

Attr of_i32(std::string name, int64_t value) {
  return {std::move(name), tagged("0.a_i32", std::to_string(value))};
}

Attr of_i64(std::string name, int64_t value) {
  return {std::move(name), tagged("0.a_i64", std::to_string(value))};
}

Attr of_f32(std::string name, double value) {
  return {std::move(name), tagged("0.a_f32", number(value))};
}

Attr of_f64(std::string name, double value) {
  return {std::move(name), tagged("0.a_f64", number(value))};
}

Attr of_string(std::string name, const std::string& value) {
  return {std::move(name), tagged("0.a_str", json_string(value))};
}

Attr of_bools(std::string name, const std::vector<bool>& values) {
  return of_list(std::move(name), values, scalar_json);
}

Attr of_i32s(std::string name, const std::vector<int64_t>& values) {
  return of_list(std::move(name), values,
                 [](int64_t v) { return tagged("0.a_i32", std::to_string(v)); });
}

Attr of_i64s(std::string name, const std::vector<int64_t>& values) {
  return of_list(std::move(name), values,
                 [](int64_t v) { return tagged("0.a_i64", std::to_string(v)); });
}

Attr of_f32s(std::string name, const std::vector<float>& values) {
  return of_list(std::move(name), values, [](float v) { return tagged("0.a_f32", number(v)); });
}

Attr of_f64s(std::string name, const std::vector<double>& values) {
  return of_list(std::move(name), values, [](double v) { return tagged("0.a_f64", number(v)); });
}

Attr of_strings(std::string name, const std::vector<std::string>& values) {
  return of_list(std::move(name), values,
                 [](const std::string& v) { return tagged("0.a_str", json_string(v)); });
}

Attr of_dims(std::string name, const std::vector<int64_t>& values) {
  return {std::move(name), tagged("1.a_intarray", fmt::format("[{}]", fmt::join(values, ",")))};
}

Attr of_dtype(std::string name, DType dtype) {
  return {std::move(name), tagged("1.a_dtype", json_string(dtype_text(dtype)))};
}

Attr of_own_dtype(std::string name) {
  return {std::move(name), tagged("1.a_dtype", json_string("Undefined(ALL_DTYPE)"))};
}

Attr of_place(bool on_host) {
  return {"place", tagged("1.a_place", on_host ? R"([1,0,""])" : R"([0,0,""])")};
}

}  // namespace millrace::interchange::pir
