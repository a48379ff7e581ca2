#include "interchange/from_pir/op_context.h"

#include <cmath>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "framework/base/errors.h"
#include "ops/infer_shapes.h"

namespace millrace::interchange::pir {
namespace {

constexpr const char* kFormat = "PIR";

bool is_whole(double value) {
  return value == std::floor(value) && std::abs(value) <= 9e15;
}

// Ops of release 3 have results without dims where those of a program have [1].
bool is_scalar(const Dims& dims) {
  return dims.empty() || (dims.size() == 1 && dims[0] == 1);
}

bool agree(const Dims& a, const Dims& b) {
  if (is_scalar(a) && is_scalar(b)) return true;
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i)
    if (a[i] >= 0 && b[i] >= 0 && a[i] != b[i]) return false;
  return true;
}

}  // namespace

// ---- errors

Status ImportContext::refuse(const std::string& why) const {
  return Unimplemented("import of {}: {}: {}", kFormat, op_text(source_.name, index_), why);
}

void ImportContext::fail(Status status) {
  if (status_.ok()) status_ = std::move(status);
}

void ImportContext::fail_kind(llvm::StringRef name) {
  fail(InvalidProgram("{}: the attribute {} is of another kind than expected",
                      op_text(source_.name, index_), name.str()));
}

Status ImportContext::finish() {
  MILLRACE_RETURN_IF_ERROR(Status(status_));
  for (const auto& [name, value] : source_.attrs) {
    // the name of the layer that made the op
    if (name == "struct_name" || name == "op_callstack" || attrs_read_.contains(name)) continue;
    return refuse(fmt::format("attribute {} is not known to the import", name));
  }
  for (size_t k = 0; k < count(); ++k)
    if (has(k) && !inputs_read_.contains(k))
      return refuse(fmt::format("operand {} is not known to the import", k));
  return Ok();
}

// ---- operands

Imported* ImportContext::read(size_t k) {
  inputs_read_.insert(k);
  if (!has(k)) {
    fail(InvalidProgram("{}: operand {} is missing", op_text(source_.name, index_), k));
    return nullptr;
  }
  return &state_.values[source_.inputs[k]];
}

std::string ImportContext::var_of(int64_t id) {
  Imported& value = state_.values[id];
  if (const auto* const var = std::get_if<std::string>(&value)) {
    const auto unlike = state_.unlike.find(*var);
    if (unlike != state_.unlike.end()) fail(refuse(unlike->second));
    return *var;
  }
  if (auto* const constant = std::get_if<Constant>(&value)) return var_of(*constant);
  fail(refuse(fmt::format("value {} is a list, or the import does not compute it", id)));
  return "";
}

std::string ImportContext::in(size_t k) {
  return read(k) == nullptr ? "" : var_of(source_.inputs[k]);
}

bool ImportContext::is_list(size_t k) const {
  if (!has(k)) return false;
  const auto found = state_.values.find(source_.inputs[k]);
  return found != state_.values.end() && std::holds_alternative<VarList>(found->second);
}

std::vector<std::string> ImportContext::list(size_t k) {
  const Imported* const value = read(k);
  if (value == nullptr) return {};
  const auto* const ids = std::get_if<VarList>(value);
  if (ids == nullptr) {
    fail(refuse(fmt::format("operand {} is no list that the program makes", k)));
    return {};
  }
  std::vector<std::string> vars;
  for (const int64_t id : VarList(*ids)) vars.push_back(var_of(id));
  return vars;
}

Constant* ImportContext::constant(size_t k) {
  Imported* const value = read(k);
  return value == nullptr ? nullptr : std::get_if<Constant>(value);
}

std::vector<int64_t> ImportContext::ints(size_t k, const char* what) {
  const Constant* const found = constant(k);
  if (found == nullptr) {
    fail(refuse(fmt::format("{} that the program computes", what)));
    return {};
  }
  if (found->is_list) return found->integers;
  if (is_whole(found->value) && is_scalar(found->dims)) return {static_cast<int64_t>(found->value)};
  fail(refuse(fmt::format("{} that are no integers", what)));
  return {};
}

int64_t ImportContext::integer(size_t k, const char* what) {
  const std::vector<int64_t> values = ints(k, what);
  if (values.size() == 1) return values[0];
  if (is_ok()) fail(refuse(fmt::format("{}: {} numbers, expected one", what, values.size())));
  return 0;
}

double ImportContext::number(size_t k, const char* what) {
  const Constant* const found = constant(k);
  if (found != nullptr && !found->is_list && is_scalar(found->dims)) return found->value;
  fail(refuse(fmt::format("{} that the program computes", what)));
  return 0;
}

// ---- attributes

const SourceAttr* ImportContext::find_attr(llvm::StringRef name) {
  attrs_read_.insert(name.str());
  const auto found = source_.attrs.find(name.str());
  if (found != source_.attrs.end()) return &found->second;
  fail(
      InvalidProgram("{}: the attribute {} is missing", op_text(source_.name, index_), name.str()));
  return nullptr;
}

int32_t ImportContext::dtype_attr(llvm::StringRef name) {
  const auto text = attr<std::string>(name);
  if (llvm::StringRef(text).starts_with("Undefined")) return -1;
  const auto dtype = dtype_of_text(text);
  if (!dtype) fail(refuse("the element type " + text));
  return static_cast<int32_t>(dtype.value_or(DType::kFloat32));
}

void ImportContext::ignore(std::initializer_list<llvm::StringRef> names) {
  for (const llvm::StringRef name : names) attrs_read_.insert(name.str());
}

// ---- vars

Dims ImportContext::dims(const std::string& var) const {
  const Var* const found = block().find_var(var);
  return found == nullptr ? Dims() : Dims(found->dims().begin(), found->dims().end());
}

DType ImportContext::dtype(const std::string& var) const {
  const Var* const found = block().find_var(var);
  return found == nullptr ? DType::kFloat32 : found->dtype();
}

std::string ImportContext::new_var(const std::string& stem) {
  std::string name = stem;
  for (int i = 1; !state_.names.insert(name).second; ++i) name = fmt::format("{}.{}", stem, i);
  block().declare(name, VarSpec::tensor(DType::kFloat32, {}));
  return name;
}

// A constant as a tensor. One for each block is enough: ops do not write to it.
std::string ImportContext::var_of(Constant& constant) {
  if (!constant.var.empty()) return constant.var;
  const auto type = static_cast<int32_t>(constant.dtype);
  if (constant.is_list) {
    const auto count = static_cast<int64_t>(constant.integers.size());
    if (count == 0 || constant.dtype != DType::kInt64) {
      fail(
          refuse("a list of integers as a tensor, without elements or of another type than int64"));
      return "";
    }
    constant.var = add("assign_value", {},
                       {{"shape", AttrValue::of_longs({count})},
                        {"dtype", AttrValue::of_int(type)},
                        {"int64_values", AttrValue::of_longs(constant.integers)}});
    return constant.var;
  }
  const std::vector<int64_t> dims(constant.dims.begin(), constant.dims.end());
  constant.var = add("fill_constant", {},
                     {{"shape", AttrValue::of_longs(dims)},
                      {"dtype", AttrValue::of_int(type)},
                      {"value", AttrValue::of_float(static_cast<float>(constant.value))},
                      {"str_value", AttrValue::of_string(fmt::format("{}", constant.value))}});
  return constant.var;
}

// ---- ops

Op& ImportContext::append(const char* type) {
  made_.clear();
  return block().append_op(type);
}

void ImportContext::set_attr(Op& op, const char* name, const AttrValue& value) {
  if (Status set = set_fitting(*state_.registry, op, name, value, kFormat); !set.ok())
    fail(std::move(set).with_note(op_text(source_.name, index_)));
}

const SourceResult& ImportContext::result(size_t k) {
  static const SourceResult& none = *new SourceResult;
  if (k < source_.results.size()) return source_.results[k];
  fail(InvalidProgram("{}: {} results, expected more than {}", op_text(source_.name, index_),
                      source_.results.size(), k));
  return none;
}

void ImportContext::set(size_t k, Imported value) {
  const int64_t id = result(k).id;
  if (id != 0) state_.values[id] = std::move(value);
}

void ImportContext::overwrite(size_t operand, size_t k) {
  const auto made = state_.values.find(result(k).id);
  if (!is_ok() || made == state_.values.end() || !has(operand)) return;
  const Imported value = made->second;
  state_.values[source_.inputs[operand]] = value;
}

void ImportContext::add_result(Op& op, const char* slot, size_t k) {
  const SourceResult& made = result(k);
  const std::string var = new_var(fmt::format("{}.{}", name().str(), made.id));
  std::vector<std::string> vars;
  for (const llvm::StringRef other : op.output(slot)) vars.push_back(other.str());
  vars.push_back(var);
  op.set_output(slot, vars);
  made_.emplace_back(var, made.types.empty() ? TensorType{} : made.types[0]);
  if (made.id != 0) state_.values[made.id] = var;
}

void ImportContext::add_results(Op& op, const char* slot, size_t k) {
  const SourceResult& made = result(k);
  std::vector<std::string> vars;
  VarList ids;
  for (const TensorType& type : made.types) {
    vars.push_back(new_var(fmt::format("{}.{}", name().str(), made.id)));
    made_.emplace_back(vars.back(), type);
    // Tensors of a list have no ids in the file: those below 0 are free.
    ids.push_back(-static_cast<int64_t>(state_.values.size()) - 1);
    state_.values[ids.back()] = vars.back();
  }
  op.set_output(slot, vars);
  if (made.id != 0) state_.values[made.id] = std::move(ids);
}

void ImportContext::set_result(Op& op, const char* slot, size_t k, const std::string& var) {
  op.set_output(slot, var);
  set(k, var);
}

void ImportContext::finish_op(Op& op) {
  if (!is_ok()) return;
  if (Status inferred = ops::infer_op(*state_.registry, op); !inferred.ok())
    return fail(std::move(inferred).with_note(
        fmt::format("import of {}: {}", kFormat, op_text(source_.name, index_))));
  for (const auto& [var, type] : made_) check_type(var, type);
}

void ImportContext::check_type(const std::string& var, const TensorType& stated) {
  const Var& found = *block().find_var(var);
  if (!found.spec().has_tensor()) return;
  const Dims own = dims(var);
  if (found.dtype() == stated.dtype && agree(own, stated.dims)) return;
  state_.unlike[var] =
      fmt::format("the program states '{}' as {} [{}], but our op computes {} [{}]", var,
                  dtype_name(stated.dtype), fmt::join(stated.dims, ", "), dtype_name(found.dtype()),
                  fmt::join(own, ", "));
}

std::string ImportContext::add(const char* type,
                               const std::vector<std::pair<const char*, std::string>>& inputs,
                               const std::vector<std::pair<const char*, AttrValue>>& attrs,
                               const char* slot) {
  if (!is_ok()) return "";
  Op& op = block().append_op(type);
  for (const auto& [input, var] : inputs) op.set_input(input, var);
  std::string var = new_var(fmt::format("{}.{}", name().str(), type));
  op.set_output(slot, var);
  for (const auto& [attr, value] : attrs) set_attr(op, attr, value);
  if (!is_ok()) return "";
  if (Status inferred = ops::infer_op(*state_.registry, op); !inferred.ok())
    fail(std::move(inferred).with_note(op_text(source_.name, index_)));
  return var;
}

}  // namespace millrace::interchange::pir
