#include "jobs/checkpoint/reshard_tables.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <llvm/ADT/StringRef.h>

#include "framework/base/errors.h"
#include "framework/base/of_var.h"
#include "jobs/checkpoint/table_parts.h"
#include "jobs/config/typed_tables.h"
#include "ps/table/routing.h"
#include "ps/table/state_parts.h"

namespace millrace::jobs {
namespace {

constexpr std::string_view kMark = "@TABLE@";

// "@TABLE@<id>@<part>" -> id; -1 for another name.
int table_of(const std::string& name) {
  llvm::StringRef rest(name);
  int id = -1;
  if (!rest.consume_front(llvm::StringRef(kMark.data(), kMark.size())) ||
      rest.consumeInteger(10, id) || !rest.startswith("@"))
    return -1;
  return id;
}

using Places = std::vector<ps::RowPlace>;

// Distributes the keys of all old servers over the new servers, in ascending order.
Status deal(const std::vector<std::vector<int64_t>>& keys, const ps::SparseRouting& routing,
            std::vector<Places>& by_server) {
  Places all;
  for (size_t server = 0; server < keys.size(); ++server) ps::add_places(keys[server], server, all);
  MILLRACE_RETURN_IF_ERROR(ps::sort_places(all, "key"));
  for (const ps::RowPlace& place : all)
    by_server[static_cast<size_t>(routing.server_of(place.row))].push_back(place);
  return Ok();
}

Status no_table(const ServerSnapshots& from, const std::string& param) {
  if (!from.vars().contains(param)) return NotFound("the snapshots do not have the variable");
  return Unimplemented("the variable is no typed table in the snapshots, but in the new job")
      .with_hint(
          "checkpoint convert --to npz writes the values of the snapshots, and --params of the new "
          "job fills its tables with them");
}

// Rows of another form may have the same length.
Status check_rows_alike(const ps::TypedTable& old, const ps::TypedTable& table) {
  const std::string form = row_form(table);
  const std::string old_form = row_form(old);
  if (form != old_form)
    return InvalidData("expected rows of {}, found {} in the snapshots", form, old_form);
  if (table.height >= old.height) return Ok();
  return InvalidData("the new job declares {} rows, the one of the snapshots {}", table.height,
                     old.height);
}

std::vector<int64_t> keys_of(const Places& places) {
  std::vector<int64_t> keys;
  for (const ps::RowPlace& place : places) keys.push_back(place.row);
  return keys;
}

// Keys come from partitions that have made other numbers of draws.
std::vector<int64_t> most_draws(const std::vector<std::vector<int64_t>>& by_server) {
  int64_t most = 0;
  for (const std::vector<int64_t>& draws : by_server)
    for (const int64_t each : draws) most = std::max(most, each);
  return {most};
}

}  // namespace

bool is_table_part(const std::string& name) {
  return table_of(name) >= 0;
}

StatusOr<TableReshard> TableReshard::open(const ServerSnapshots& from,
                                          const std::vector<ps::TypedTable>& tables,
                                          uint64_t max_bytes) {
  std::vector<ps::TypedTable> old;
  for (const auto& [param, table] : from.typed()) old.push_back(table);
  for (const ps::TypedTable& table : tables) {
    if (!from.typed().contains(table.param))
      return of_var(no_table(from, table.param), table.param);
  }
  return open(from.servers(), old, tables, max_bytes);
}

StatusOr<TableReshard> TableReshard::open(const std::vector<io::Checkpoint>& servers,
                                          const std::vector<ps::TypedTable>& old_tables,
                                          const std::vector<ps::TypedTable>& tables,
                                          uint64_t max_bytes) {
  TableReshard reshard(servers, max_bytes);
  std::map<std::string, ps::TypedTable> left;
  for (const ps::TypedTable& table : old_tables) left.emplace(table.param, table);
  for (const ps::TypedTable& table : tables) {
    const auto old = left.find(table.param);
    if (old == left.end())
      return of_var(NotFound("the snapshots do not have the table"), table.param);
    const int id = old->second.options.table_id;
    Status status = check_rows_alike(old->second, table);
    if (status.ok()) status = reshard.read(id, table, reshard.tables_[table.options.table_id]);
    if (!status.ok())
      return std::move(status).with_note(fmt::format("in typed table '{}'", table.param));
    left.erase(old);
  }
  if (left.empty()) return reshard;
  return InvalidData("'{}' is a typed table in the snapshots, the new job has no such table",
                     left.begin()->first);
}

Status TableReshard::read(int id, const ps::TypedTable& table, Table& to) const {
  const size_t servers = table.endpoints.size();
  MILLRACE_ASSIGN_OR_RETURN(
      const ps::SparseRouting routing,
      ps::SparseRouting::create(table.shard_num, static_cast<int64_t>(servers)));
  std::vector<std::vector<int64_t>> keys;
  std::vector<std::vector<int64_t>> waiting;
  for (size_t i = 0; i < from_->size(); ++i) {
    const io::Checkpoint& server = (*from_)[i];
    MILLRACE_ASSIGN_OR_RETURN(keys.emplace_back(),
                              numbers_of<int64_t>(server, id, ps::kKeysPart, DType::kInt64));
    MILLRACE_ASSIGN_OR_RETURN(waiting.emplace_back(),
                              numbers_of<int64_t>(server, id, ps::kWaitingKeysPart, DType::kInt64));
    MILLRACE_ASSIGN_OR_RETURN(
        to.counts.emplace_back(),
        numbers_of<float>(server, id, ps::kWaitingCountsPart, DType::kFloat32));
    MILLRACE_ASSIGN_OR_RETURN(to.draws.emplace_back(),
                              numbers_of<int64_t>(server, id, ps::kDrawsPart, DType::kInt64));
    const io::StoredTensor* const rows = server.manifest().find(ps::table_item(id, ps::kRowsPart));
    if (rows == nullptr || rows->dims.size() != 2 ||
        rows->dims[0] != static_cast<int64_t>(keys.back().size()) ||
        to.counts.back().size() != waiting.back().size())
      return InvalidData("numbers of keys and rows of typed table {} differ", id)
          .in_file(server.folder());
    if (i > 0 && rows->dims[1] != to.rows.dims[1])
      return InvalidData("rows of {} floats, expected {} as on the other servers", rows->dims[1],
                         to.rows.dims[1])
          .in_file(server.folder());
    to.rows.kind = JoinedVar::Kind::kTable;
    to.rows.dims = rows->dims;
    to.rows.slices.push_back({i, rows, 0});
  }
  to.admitted.resize(servers);
  to.waiting.resize(servers);
  MILLRACE_RETURN_IF_ERROR(deal(keys, routing, to.admitted));
  return deal(waiting, routing, to.waiting);
}

std::vector<io::StreamedTensor> TableReshard::tensors_of(size_t server) const {
  std::vector<io::StreamedTensor> tensors;
  for (const auto& [id, table] : tables_) {
    const Places& admitted = table.admitted[server];
    const Places& waiting = table.waiting[server];
    tensors.push_back(
        stream_of(ps::table_item(id, ps::kKeysPart), DType::kInt64, keys_of(admitted)));
    io::StreamedTensor rows;
    rows.name = ps::table_item(id, ps::kRowsPart);
    rows.dtype = table.rows.dtype;
    rows.dims = {static_cast<int64_t>(admitted.size()), table.rows.dims[1]};
    const auto stream = std::make_shared<RowsStream>(*from_, table.rows, admitted, max_bytes_);
    rows.read = [stream](uint64_t offset, std::span<std::byte> to) {
      return stream->read(offset, to);
    };
    tensors.push_back(std::move(rows));
    std::vector<float> counts;
    for (const ps::RowPlace& place : waiting)
      counts.push_back(table.counts[place.shard][place.position]);
    tensors.push_back(
        stream_of(ps::table_item(id, ps::kWaitingKeysPart), DType::kInt64, keys_of(waiting)));
    tensors.push_back(
        stream_of(ps::table_item(id, ps::kWaitingCountsPart), DType::kFloat32, std::move(counts)));
    const bool alike = table.admitted.size() == from_->size();
    tensors.push_back(stream_of(ps::table_item(id, ps::kDrawsPart), DType::kInt64,
                                alike ? table.draws[server] : most_draws(table.draws)));
  }
  return tensors;
}

}  // namespace millrace::jobs
