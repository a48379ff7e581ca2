#include "ps/server/table_rows.h"

#include <cstring>
#include <utility>

#include "framework/base/errors.h"
#include "kernels/cpu/row_position.h"

namespace millrace::ps {
Status look_up_rows(const Value& table, const Tensor& ids, Tensor& out) {
  const auto* const rows = table.get_if<SelectedRows>();
  const Tensor* const values = rows != nullptr ? &rows->value : table.get_if<Tensor>();
  if (values == nullptr || !values->initialized() || values->rank() == 0)
    return InvalidArgument("a table must have rows, found {}", describe(table));
  if (ids.dtype() != DType::kInt64)
    return InvalidArgument("ids must be i64, found {}", describe(ids));
  const int64_t height = values->dim(0);
  const int64_t bytes = height == 0 ? 0 : values->bytes() / height;
  Dims dims(values->dims().begin(), values->dims().end());
  dims[0] = ids.numel();
  MILLRACE_RETURN_IF_ERROR(out.resize(values->dtype(), dims));
  for (int64_t i = 0; i < ids.numel(); ++i) {
    const int64_t id = ids.data<int64_t>()[i];
    const int64_t row = rows != nullptr ? kernels::row_position(*rows, id) : id;
    if (row < 0 || row >= height) {
      return InvalidArgument("row {} is not in the table {} of this server", id, describe(table));
    }
    std::memcpy(out.raw() + i * bytes, values->raw() + row * bytes, static_cast<size_t>(bytes));
  }
  return Ok();
}

void number_rows(Value& table, int64_t server, int64_t servers, int64_t height) {
  if (auto* const dense = table.get_if<Tensor>()) {
    Tensor values = std::move(*dense);
    table.as<SelectedRows>().value = std::move(values);
  }
  auto* const rows = table.get_if<SelectedRows>();
  if (rows == nullptr || !rows->rows.empty() || !rows->value.initialized()) return;
  rows->height = height;
  for (int64_t i = 0; i < rows->value.dim(0); ++i) rows->rows.push_back(server + i * servers);
}

}  // namespace millrace::ps
