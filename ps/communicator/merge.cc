#include "ps/communicator/merge.h"

#include <vector>

#include "framework/base/errors.h"
#include "framework/tensor/join_rows.h"
#include "kernels/cpu/merge_rows.h"

namespace millrace::ps {
namespace {

Status cannot_merge(const Value& first, const Value& other) {
  return {StatusCode::kExecution,
          fmt::format("cannot merge values of different types or dims: {} and {}", describe(first),
                      describe(other))};
}

template <typename T>
void divide(Tensor& tensor, size_t count) {
  const T factor = T(1) / static_cast<T>(count);
  for (T& value : tensor.values<T>()) value *= factor;
}

Status average_tensor(Tensor& tensor, size_t count) {
  if (count == 1) return Ok();
  if (tensor.dtype() == DType::kFloat32) divide<float>(tensor, count);
  if (tensor.dtype() == DType::kFloat64) divide<double>(tensor, count);
  return Ok();
}

Status merge_tensors(std::span<Value> values, bool average) {
  auto& sum = *values[0].get_if<Tensor>();
  for (const Value& value : values.subspan(1)) {
    const auto* const next = value.get_if<Tensor>();
    if (next == nullptr || next->dtype() != sum.dtype() || next->dims() != sum.dims())
      return cannot_merge(values[0], value);
    switch (sum.dtype()) {
      case DType::kFloat32:
        add_elements(next->data<float>(), sum.data<float>(), sum.numel());
        break;
      case DType::kFloat64:
        add_elements(next->data<double>(), sum.data<double>(), sum.numel());
        break;
      case DType::kInt64:
        add_elements(next->data<int64_t>(), sum.data<int64_t>(), sum.numel());
        break;
      default:
        return {StatusCode::kExecution,
                fmt::format("{} cannot be added up, expected f32, f64 or i64", describe(value))};
    }
  }
  return average ? average_tensor(sum, values.size()) : Ok();
}

Status merge_selected_rows(std::span<Value> values, bool average, bool adds_up) {
  auto& result = *values[0].get_if<SelectedRows>();
  if (values.size() > 1) {
    std::vector<const SelectedRows*> parts;
    for (const Value& value : values) {
      parts.push_back(value.get_if<SelectedRows>());
      if (parts.back() == nullptr) return cannot_merge(values[0], value);
    }
    SelectedRows all;
    MILLRACE_RETURN_IF_ERROR(join_rows(parts, all));
    result = std::move(all);
  }
  if (result.rows.empty()) return Ok();
  if (adds_up) {
    MILLRACE_ASSIGN_OR_RETURN(SelectedRows merged, kernels::merged_rows(result));
    result = std::move(merged);
  }
  return average ? average_tensor(result.value, values.size()) : Ok();
}

}  // namespace

Status merge_values(std::span<Value> values, bool average, bool adds_up_rows) {
  if (values[0].holds<SelectedRows>()) return merge_selected_rows(values, average, adds_up_rows);
  if (values[0].holds<Tensor>()) return merge_tensors(values, average);
  return {StatusCode::kExecution,
          fmt::format("expected a tensor or selected rows to send, found {}", describe(values[0]))};
}

Status copy_value(const Value& from, Value& to) {
  if (const auto* const tensor = from.get_if<Tensor>()) return to.as<Tensor>().copy_from(*tensor);
  if (const auto* const rows = from.get_if<SelectedRows>()) {
    auto& copy = to.as<SelectedRows>();
    copy.rows = rows->rows;
    copy.height = rows->height;
    return copy.value.copy_from(rows->value);
  }
  return InvalidArgument("expected a tensor or selected rows to send, found {}", describe(from));
}

}  // namespace millrace::ps
