#include "jobs/checkpoint/typed_values.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "framework/base/errors.h"
#include "jobs/checkpoint/reshard_tables.h"
#include "ps/table/routing.h"
#include "ps/table/state_parts.h"

namespace millrace::jobs {
namespace typed_values {

// The table of one server, in memory.
StatusOr<std::unique_ptr<ps::SparseTable>> restore(const ps::TypedTable& typed,
                                                   const io::Checkpoint& server) {
  ps::SparseTableOptions options = typed.options;
  options.disk_path.clear();
  MILLRACE_ASSIGN_OR_RETURN(std::unique_ptr<ps::SparseTable> table,
                            ps::SparseTable::create(std::move(options)));
  const std::string prefix = ps::table_item(typed.options.table_id, "");
  ps::TableState state;
  for (const io::StoredTensor& stored : server.manifest().tensors) {
    if (!stored.name.starts_with(prefix)) continue;
    MILLRACE_ASSIGN_OR_RETURN(state[stored.name.substr(prefix.size())], server.load(stored.name));
  }
  if (!state.empty()) MILLRACE_RETURN_IF_ERROR(table->set_state(state).in_file(server.folder()));
  return table;
}

// Copies the rows of the keys to their places among all rows.
Status pull_rows(ps::SparseTable& table, const std::vector<int64_t>& keys, Tensor& all) {
  const int64_t width = all.dim(1);
  std::vector<float> rows(keys.size() * static_cast<size_t>(width));
  MILLRACE_RETURN_IF_ERROR(table.pull(keys, rows.data(), {}, false));
  for (size_t i = 0; i < keys.size(); ++i)
    std::copy_n(rows.data() + static_cast<int64_t>(i) * width, width,
                all.data<float>() + keys[i] * width);
  return Ok();
}

}  // namespace typed_values

Status add_typed_tables(const std::vector<ps::TypedTable>& tables,
                        const std::vector<io::Checkpoint>& servers,
                        std::map<std::string, JoinedVar>& vars) {
  for (const ps::TypedTable& table : tables) {
    MILLRACE_ASSIGN_OR_RETURN(const ps::SparseLayout layout, ps::layout_of(table));
    JoinedVar& joined = vars[table.param];
    joined.kind = JoinedVar::Kind::kTyped;
    joined.dims = {table.height, layout.pull_width};
  }
  for (size_t i = 0; i < servers.size(); ++i) {
    for (const io::StoredTensor& stored : servers[i].manifest().tensors) {
      if (!is_table_part(stored.name)) continue;
      const auto table = std::ranges::find_if(tables, [&](const ps::TypedTable& each) {
        return stored.name.starts_with(ps::table_item(each.options.table_id, ""));
      });
      if (table == tables.end())
        return InvalidData("'{}' belongs to a typed table that the job's tables.json does not have",
                           stored.name)
            .in_file(servers[i].folder());
      if (stored.name == ps::table_item(table->options.table_id, ps::kRowsPart))
        vars[table->param].slices.push_back({i, &stored, 0});
    }
  }
  return Ok();
}

StatusOr<Value> load_typed_table(const ps::TypedTable& table,
                                 const std::vector<io::Checkpoint>& servers) {
  MILLRACE_ASSIGN_OR_RETURN(const ps::SparseLayout layout, ps::layout_of(table));
  MILLRACE_ASSIGN_OR_RETURN(
      const ps::SparseRouting routing,
      ps::SparseRouting::create(table.shard_num, static_cast<int64_t>(servers.size())));
  std::vector<std::vector<int64_t>> keys(servers.size());
  for (int64_t key = 0; key < table.height; ++key)
    keys[static_cast<size_t>(routing.server_of(key))].push_back(key);
  Value value;
  Tensor& all = value.as<Tensor>();
  MILLRACE_RETURN_IF_ERROR(all.resize(DType::kFloat32, {table.height, layout.pull_width}));
  for (size_t i = 0; i < servers.size(); ++i) {
    MILLRACE_ASSIGN_OR_RETURN(const std::unique_ptr<ps::SparseTable> part,
                              typed_values::restore(table, servers[i]));
    MILLRACE_RETURN_IF_ERROR(typed_values::pull_rows(*part, keys[i], all));
  }
  return value;
}

}  // namespace millrace::jobs
