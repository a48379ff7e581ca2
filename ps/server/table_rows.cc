#include "ps/server/table_rows.h"

#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "framework/base/errors.h"
#include "framework/row_owner.h"
#include "kernels/cpu/row_position.h"

namespace millrace::ps {
namespace {

// Rows of a large table are far apart in memory; this many are prefetched ahead.
constexpr size_t kAhead = 12;

Status no_row(int64_t id, const Value& table) {
  return InvalidArgument("row {} is not in the table {} of this server", id, describe(table));
}

void copy_rows(const Tensor& values, std::span<const int64_t> rows, size_t bytes, std::byte* to) {
  const std::byte* const from = values.raw();
  for (size_t i = 0; i < rows.size(); ++i, to += bytes) {
    if (i + kAhead < rows.size()) {
      const std::byte* const next = from + static_cast<size_t>(rows[i + kAhead]) * bytes;
      __builtin_prefetch(next);
      // an unaligned row may extend into one more cache line
      __builtin_prefetch(next + bytes - 1);
    }
    std::memcpy(to, from + static_cast<size_t>(rows[i]) * bytes, bytes);
  }
}

// As an initializer makes the rows, which does not know that they are those of one server.
bool is_numbered_from_zero(const SelectedRows& table) {
  if (table.height != static_cast<int64_t>(table.rows.size())) return false;
  for (size_t i = 0; i < table.rows.size(); ++i) {
    if (table.rows[i] != static_cast<int64_t>(i)) return false;
  }
  return true;
}

}  // namespace

Status look_up_rows(const Value& table, const Tensor& ids, std::string_view name,
                    ReplySink& reply) {
  const auto* const rows = table.get_if<SelectedRows>();
  const Tensor* const values = kernels::rows_of_table(table);
  if (values == nullptr)
    return InvalidArgument("a table must have rows, found {}", describe(table));
  if (ids.dtype() != DType::kInt64)
    return InvalidArgument("ids must be i64, found {}", describe(ids));
  const int64_t height = values->dim(0);
  std::span<const int64_t> wanted = ids.values<int64_t>();
  std::vector<int64_t> positions;
  if (rows != nullptr) {
    for (const int64_t id : wanted) {
      positions.push_back(kernels::row_position(*rows, id));
      if (positions.back() < 0) return no_row(id, table);
    }
    wanted = positions;
  }
  for (const int64_t row : wanted) {
    if (row < 0 || row >= height) return no_row(row, table);
  }
  Dims dims(values->dims().begin(), values->dims().end());
  dims[0] = ids.numel();
  MILLRACE_ASSIGN_OR_RETURN(std::byte* const room, reply.put_room(name, values->dtype(), dims));
  if (!wanted.empty())
    copy_rows(*values, wanted, static_cast<size_t>(values->bytes() / height), room);
  return Ok();
}

void number_rows(Value& table, int64_t server, int64_t servers, int64_t height) {
  if (auto* const dense = table.get_if<Tensor>()) {
    Tensor values = std::move(*dense);
    table.as<SelectedRows>().value = std::move(values);
  }
  auto* const rows = table.get_if<SelectedRows>();
  if (rows == nullptr || !rows->value.initialized() || rows->value.rank() == 0) return;
  const int64_t count = rows->value.dim(0);
  if (!rows->rows.empty() && !is_numbered_from_zero(*rows)) return;
  // another number of rows than programs of the transpiler make: the height is not that of the rows
  const bool fits = height > 0 && rows_of_server(height, 0, servers) == count;
  rows->height = fits ? height : count * servers;
  const int64_t own = rows_of_server(rows->height, server, servers);
  rows->rows = first_rows_of_server(own, server, servers);
  if (own < count) rows->value = rows->value.share_rows(0, own);
}

}  // namespace millrace::ps
