#include "framework/tensor/value.h"

#include <fmt/format.h>

#include "framework/tensor/layout.h"
#include "framework/tensor/scope.h"

namespace millrace {

Value::~Value() = default;

bool Value::initialized() const {
  if (const auto* const tensor = get_if<Tensor>()) return tensor->initialized();
  if (const auto* const rows = get_if<SelectedRows>()) return rows->value.initialized();
  return !holds<std::monostate>();
}

VarKind Value::kind() const {
  if (holds<Tensor>()) return VarKind::kLodTensor;
  if (holds<SelectedRows>()) return VarKind::kSelectedRows;
  if (holds<TensorArray>()) return VarKind::kLodTensorArray;
  if (holds<RankTable>()) return VarKind::kLodRankTable;
  if (holds<StepScopes>()) return VarKind::kStepScopes;
  if (holds<Strings>()) return VarKind::kStrings;
  return VarKind::kRaw;
}

void Value::clear() {
  payload_.emplace<std::monostate>();
}

namespace {

// A copy in process memory: only one library can copy elements in a private order.
StatusOr<Tensor> clone_here(const Tensor& tensor) {
  if (tensor.layout() == nullptr || !tensor.layout()->is_private()) return tensor.clone();
  Tensor copy;
  MILLRACE_RETURN_IF_ERROR(copy_plain(tensor, copy));
  return copy;
}

}  // namespace

StatusOr<Value> clone(const Value& value) {
  Value copy;
  if (const auto* const tensor = value.get_if<Tensor>()) {
    MILLRACE_ASSIGN_OR_RETURN(copy.as<Tensor>(), clone_here(*tensor));
  } else if (const auto* const rows = value.get_if<SelectedRows>()) {
    auto& to = copy.as<SelectedRows>();
    to.rows = rows->rows;
    to.height = rows->height;
    MILLRACE_ASSIGN_OR_RETURN(to.value, clone_here(rows->value));
  } else if (const auto* const array = value.get_if<TensorArray>()) {
    auto& to = copy.as<TensorArray>();
    for (const Tensor& element : *array) {
      MILLRACE_ASSIGN_OR_RETURN(Tensor cloned, clone_here(element));
      to.push_back(std::move(cloned));
    }
  } else if (const auto* const table = value.get_if<RankTable>()) {
    copy.as<RankTable>() = *table;
  } else if (const auto* const strings = value.get_if<Strings>()) {
    copy.as<Strings>() = *strings;
  } else if (value.holds<StepScopes>()) {
    return Status(StatusCode::kInternal, "step scopes cannot be copied");
  }
  return copy;
}

std::string describe(const Value& value) {
  if (const auto* const tensor = value.get_if<Tensor>()) return describe(*tensor);
  if (const auto* const rows = value.get_if<SelectedRows>()) {
    return fmt::format("selected rows, {} of {}, {}", rows->rows.size(), rows->height,
                       describe(rows->value));
  }
  if (const auto* const array = value.get_if<TensorArray>())
    return fmt::format("an array of {} tensors", array->size());
  if (value.holds<std::monostate>()) return "nothing";
  return std::string(var_kind_name(value.kind()));
}

}  // namespace millrace
