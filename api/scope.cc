#include "api/scope.h"

#include <algorithm>
#include <utility>

#include "api/internals.h"
#include "executor/array_values.h"
#include "framework/base/errors.h"

namespace millrace::api {
namespace {

StatusOr<const Value*> value_of(const millrace::Scope& vars, const std::string& name) {
  const Value* const value = vars.find_local(name);
  if (value == nullptr || !value->initialized())
    return NotFound("the scope has no var '{}' with a value", name);
  return value;
}

}  // namespace

StatusOr<Rows> rows_of(const std::string& name, const Value& value) {
  const auto* const selected = value.get_if<SelectedRows>();
  if (selected == nullptr)
    return InvalidArgument("var '{}': expected rows of a matrix, found {}", name, describe(value));
  Rows rows{selected->rows, selected->height, {}};
  Value copy;
  MILLRACE_RETURN_IF_ERROR(copy.as<Tensor>().copy_from(selected->value));
  MILLRACE_ASSIGN_OR_RETURN(rows.values, executor::to_array(name, copy));
  return rows;
}

Scope::Scope() : state_(std::make_shared<State>()) {}
Scope::Scope(const Scope&) = default;
Scope& Scope::operator=(const Scope&) = default;
Scope::~Scope() = default;

std::vector<std::string> Scope::names() const {
  std::vector<std::string> names = state_->vars.names();
  std::erase_if(names, [this](const std::string& name) { return !has(name); });
  return names;
}

bool Scope::has(const std::string& name) const {
  const Value* const value = state_->vars.find_local(name);
  return value != nullptr && value->initialized();
}

StatusOr<Array> Scope::get(const std::string& name) const {
  MILLRACE_ASSIGN_OR_RETURN(const Value* const value, value_of(state_->vars, name));
  return executor::to_array(name, *value);
}

StatusOr<Rows> Scope::get_rows(const std::string& name) const {
  MILLRACE_ASSIGN_OR_RETURN(const Value* const value, value_of(state_->vars, name));
  return rows_of(name, *value);
}

Status Scope::set(const std::string& name, const Array& value) {
  MILLRACE_ASSIGN_OR_RETURN(Tensor tensor, executor::to_tensor(name, value));
  state_->vars.local(name).as<Tensor>() = std::move(tensor);
  return Ok();
}

Status Scope::set_rows(const std::string& name, const Rows& value) {
  MILLRACE_ASSIGN_OR_RETURN(Tensor tensor, executor::to_tensor(name, value.values));
  const auto count = static_cast<int64_t>(value.rows.size());
  if (tensor.dims().empty() || tensor.dims()[0] != count)
    return InvalidArgument("rows of '{}': expected values of {} rows, found {}", name, count,
                           describe(tensor));
  for (const int64_t row : value.rows) {
    if (row < 0 || row >= value.height)
      return InvalidArgument("rows of '{}': expected rows in [0, {}), found {}", name, value.height,
                             row);
  }
  auto& selected = state_->vars.local(name).as<SelectedRows>();
  selected.rows = value.rows;
  selected.height = value.height;
  selected.value = std::move(tensor);
  return Ok();
}

void Scope::clear(const std::string& name) {
  // The value itself stays: prepared programs refer to it.
  if (Value* const value = state_->vars.find_local(name)) value->clear();
}

}  // namespace millrace::api
