#include "ps/values.h"

#include <cstring>

#include "framework/base/errors.h"
#include "framework/tensor/layout.h"

namespace millrace::ps {

Status copy_tensor_into(const Tensor& from, Tensor& to) {
  if (!from.initialized()) {
    to.reset();
    return Ok();
  }
  return copy_plain(from, to);
}

Status copy_value_into(const Value& from, Value& to) {
  if (const auto* const tensor = from.get_if<Tensor>())
    return copy_tensor_into(*tensor, to.as<Tensor>());
  if (const auto* const rows = from.get_if<SelectedRows>()) {
    auto& target = to.as<SelectedRows>();
    target.rows = rows->rows;
    target.height = rows->height;
    return copy_tensor_into(rows->value, target.value);
  }
  if (from.holds<StepScopes>() || from.holds<RankTable>())
    return InvalidArgument("{} cannot be sent to another process", describe(from));
  MILLRACE_ASSIGN_OR_RETURN(to, clone(from));
  return Ok();
}

Status fill_zeros(Tensor& tensor, DType dtype, llvm::ArrayRef<int64_t> dims) {
  MILLRACE_RETURN_IF_ERROR(tensor.resize(dtype, dims));
  if (tensor.bytes() > 0) std::memset(tensor.raw(), 0, static_cast<size_t>(tensor.bytes()));
  return Ok();
}

Tensor view_rows(Tensor& tensor, int64_t begin, int64_t count) {
  Tensor view;
  Dims dims(tensor.dims().begin(), tensor.dims().end());
  const int64_t rows = dims[0];
  const int64_t row_bytes = rows == 0 ? 0 : tensor.bytes() / rows;
  view.bind(nullptr, tensor.raw() + begin * row_bytes, static_cast<size_t>(count * row_bytes));
  dims[0] = count;
  // cannot fail: the bound memory is large enough
  if (!view.resize(tensor.dtype(), dims).ok()) return Tensor();
  return view;
}

int64_t bytes_of(const Value& value) {
  if (const auto* const tensor = value.get_if<Tensor>())
    return tensor->initialized() ? tensor->bytes() : 0;
  if (const auto* const rows = value.get_if<SelectedRows>())
    return rows->value.initialized() ? rows->value.bytes() : 0;
  return 0;
}

}  // namespace millrace::ps
