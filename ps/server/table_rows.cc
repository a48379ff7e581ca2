#include "ps/server/table_rows.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "framework/base/errors.h"

namespace millrace::ps {
namespace {

// Position of a row number among those of a table, which rise; negative if it has none.
int64_t position_of(const SelectedRows& table, int64_t id) {
  const auto& rows = table.rows;
  if (rows.empty()) return -1;
  // tables of servers have every n-th row
  if (rows.size() > 1 && rows[1] > rows[0]) {
    const int64_t step = rows[1] - rows[0];
    const int64_t guess = (id - rows[0]) / step;
    if (guess >= 0 && guess < static_cast<int64_t>(rows.size()) &&
        rows[static_cast<size_t>(guess)] == id)
      return guess;
  }
  const auto found = std::lower_bound(rows.begin(), rows.end(), id);
  return found == rows.end() || *found != id ? -1 : found - rows.begin();
}

}  // namespace

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
    const int64_t row = rows != nullptr ? position_of(*rows, id) : id;
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
