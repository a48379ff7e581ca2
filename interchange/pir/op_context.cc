#include "interchange/pir/op_context.h"

#include <cmath>

#include "framework/base/errors.h"
#include "framework/block.h"
#include "framework/names.h"
#include "ops/absent_gradients.h"

namespace millrace::interchange::pir {
namespace {

// The number of elements of the dims [first, last]; -1 if one is unknown.
int64_t extent_of(const Dims& dims, int64_t first, int64_t last) {
  int64_t product = 1;
  for (int64_t i = first; i <= last; ++i) {
    const int64_t dim = dims[static_cast<size_t>(i)];
    if (dim < 0) return -1;
    product *= dim;
  }
  return product;
}

}  // namespace

std::string shape_key(llvm::StringRef xshape) {
  return xshape.str() + '\1';
}

Value OpContext::in(llvm::StringRef slot) {
  const std::vector<Value> values = ins(slot);
  if (values.size() == 1) return values[0];
  fail(InvalidProgram("input {} has {} vars, expected one", slot.str(), values.size())
           .at(op().location()));
  // Converters rely on the rank that the declaration says.
  return {.id = 0, .types = {{.dtype = dtype(slot), .dims = dims(slot)}}};
}

Value OpContext::in_or_none(llvm::StringRef slot) {
  return has(slot) ? in(slot) : Value{.id = 0, .types = {TensorType{}}};
}

std::vector<Value> OpContext::ins(llvm::StringRef slot) {
  note_input(slot);
  std::vector<Value> values;
  for (const llvm::StringRef name : op().input(slot)) {
    const auto found = vars_.find(name.str());
    if (found == vars_.end()) {
      fail(InvalidProgram("input {} '{}' has no value: no converted op writes it and it is neither "
                          "fed nor a parameter",
                          slot.str(), name.str())
               .at(op().location()));
      return {};
    }
    values.push_back(found->second);
  }
  return values;
}

bool OpContext::names_var(llvm::StringRef slot) const {
  const llvm::StringRef name = op().first_input(slot);
  return !name.empty() && name != names::kEmpty && !ops::is_absent_gradient(op(), slot, name);
}

bool OpContext::computes(llvm::StringRef slot, size_t k) const {
  const auto names = op().output(slot);
  return k < names.size() && names[k] != names::kEmpty;
}

Value OpContext::shaped_as(llvm::StringRef xshape) {
  note_input(xshape);
  const auto found = vars_.find(shape_key(op().first_input(xshape)));
  if (found != vars_.end()) return found->second;
  fail(refuse("no converted op computes the extents in " + xshape.str()));
  return result_of({});
}

Value OpContext::to_update(const Value& value, llvm::StringRef input, llvm::StringRef output) {
  const bool is_same = op().first_input(input) == op().first_output(output);
  if (!value.exists() || (is_same && op().block().index() == 0)) return value;
  return node("assign", {value}, {}, value.type());
}

void OpContext::set_updated(llvm::StringRef slot, const Value& value) {
  set(slot, value);
  if (op().block().index() == 0) updated_.insert(value.id);
}

TensorType OpContext::out_type(llvm::StringRef slot, size_t k) const {
  const Var* const var = var_of(slot, k, /*is_output=*/true);
  if (var == nullptr) return {};
  return {.dtype = var->dtype(), .dims = Dims(var->dims().begin(), var->dims().end())};
}

void OpContext::set(llvm::StringRef slot, const Value& value, size_t k) {
  const auto names = op().output(slot);
  note_output(slot);
  if (k < names.size() && is_ok()) vars_[names[k].str()] = value;
}

Value OpContext::node(const std::string& name, const std::vector<Value>& inputs,
                      const std::vector<Attr>& attrs, TensorType type) {
  if (!has_type(type.dtype)) fail(refuse("an element type that PIR does not have"));
  return nodes(name, inputs, attrs, {result_of(std::move(type))})[0];
}

Value OpContext::list(const std::vector<Value>& values) {
  std::vector<TensorType> types;
  for (const Value& value : values) types.push_back(value.type());
  return graph_.add("0.combine", values, {}, {results_of(std::move(types))})[0];
}

std::vector<Value> OpContext::parts(const Value& value) {
  std::vector<Value> results;
  results.reserve(value.types.size());
  for (const TensorType& type : value.types) results.push_back(result_of(type));
  return graph_.add("0.split", {value}, {}, std::move(results));
}

// The reader of release 3.3.1 cannot read attributes that are not finite: they are computed.
Value OpContext::full(double value, DType dtype, const std::vector<int64_t>& dims, bool on_host) {
  const TensorType type{.dtype = dtype, .dims = Dims(dims.begin(), dims.end())};
  if (!std::isfinite(value)) {
    const double above = std::isnan(value) ? 0 : (value > 0 ? 1 : -1);
    return node("divide", {full(above, dtype, dims, on_host), full(0, dtype, dims, on_host)}, {},
                type);
  }
  return node(
      "full", {},
      {of_dims("shape", dims), of_f64("value", value), of_dtype("dtype", dtype), of_place(on_host)},
      type);
}

Value OpContext::int_list(const std::vector<int64_t>& values) {
  return node("full_int_array", {},
              {of_i64s("value", values), of_dtype("dtype", DType::kInt64), of_place(true)},
              {.dtype = DType::kInt64, .dims = {static_cast<int64_t>(values.size())}});
}

Value OpContext::cast(const Value& value, DType dtype) {
  if (value.type().dtype == dtype) return value;
  return node("cast", {value}, {of_dtype("dtype", dtype)},
              {.dtype = dtype, .dims = value.type().dims});
}

Value OpContext::reshape(const Value& value, const std::vector<int64_t>& dims) {
  TensorType type{.dtype = value.type().dtype, .dims = Dims(dims.begin(), dims.end())};
  for (size_t i = 0; i < dims.size(); ++i)
    if (dims[i] == 0) type.dims[i] = i < value.type().dims.size() ? value.type().dims[i] : -1;
  return node("reshape", {value, int_list(dims)}, {}, type);
}

Value OpContext::squeeze(const Value& value, const std::vector<int64_t>& axes) {
  TensorType type{.dtype = value.type().dtype, .dims = {}};
  for (size_t i = 0; i < value.type().dims.size(); ++i)
    if (std::find(axes.begin(), axes.end(), static_cast<int64_t>(i)) == axes.end())
      type.dims.push_back(value.type().dims[i]);
  return node("squeeze", {value, int_list(axes)}, {}, type);
}

Value OpContext::unsqueeze(const Value& value, const std::vector<int64_t>& axes) {
  TensorType type = value.type();
  for (const int64_t axis : axes) type.dims.insert(type.dims.begin() + axis, 1);
  return node("unsqueeze", {value, int_list(axes)}, {}, type);
}

Value OpContext::flatten(const Value& value, int64_t first, int64_t last) {
  const Dims& dims = value.type().dims;
  TensorType type{.dtype = value.type().dtype, .dims = Dims(dims.begin(), dims.begin() + first)};
  type.dims.push_back(extent_of(dims, first, last));
  type.dims.append(dims.begin() + last + 1, dims.end());
  return node("flatten", {value}, {of_i32("start_axis", first), of_i32("stop_axis", last)}, type);
}

Value OpContext::as_matrix(const Value& value, int64_t rows) {
  const auto rank = static_cast<int64_t>(value.type().dims.size());
  Value matrix = value;
  if (rank - rows > 1) matrix = flatten(matrix, rows, rank - 1);
  if (rows > 1) matrix = flatten(matrix, 0, rows - 1);
  return matrix;
}

Value OpContext::with_lod_of(llvm::StringRef slot, const Value& value) {
  const std::vector<Value> inputs = ins(slot);
  if (!has_lod(slot) || inputs.empty()) return value;
  return node("lod_reset", {value, inputs[0]},
              {of_i32s("target_lod", {0, 1}), of_bool("append", false)}, value.type());
}

}  // namespace millrace::interchange::pir
