#include "ps/table/trainer_tables.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include <fmt/ranges.h>

#include "framework/base/errors.h"
#include "ps/table/client_caller.h"

namespace millrace::ps {
namespace {

// Rows per pull when a whole table is gathered: a few megabytes per message.
constexpr int64_t kRowsAtOnce = 65'536;

}  // namespace

StatusOr<std::shared_ptr<TrainerTables>> TrainerTables::create(std::shared_ptr<Client> client,
                                                               std::vector<TypedTable> tables) {
  std::shared_ptr<TrainerTables> all(new TrainerTables());
  for (TypedTable& table : tables) {
    if (all->endpoints_.empty()) all->endpoints_ = table.endpoints;
    if (table.endpoints.empty() || table.endpoints != all->endpoints_)
      return InvalidArgument(
          "typed table '{}' is on [{}], expected the servers of the other tables, [{}]",
          table.param, fmt::join(table.endpoints, ", "), fmt::join(all->endpoints_, ", "));
    const int id = table.options.table_id;
    MILLRACE_ASSIGN_OR_RETURN(SparseLayout layout, layout_of(table));
    if (!all->entries_.try_emplace(id, Entry{std::move(table), layout}).second)
      return InvalidArgument("typed table {} occurs twice", id);
  }
  all->client_ = std::make_unique<TableClient>(
      std::make_shared<ClientCaller>(std::move(client), all->endpoints_));
  return all;
}

StatusOr<const TrainerTables::Entry*> TrainerTables::find(int table_id) const {
  const auto found = entries_.find(table_id);
  if (found == entries_.end())
    return NotFound("the job has no typed table {} (tables.json has {} tables)", table_id,
                    entries_.size());
  return &found->second;
}

StatusOr<Value> TrainerTables::gather(const Entry& entry) {
  const int64_t height = std::max<int64_t>(0, entry.table.height);
  const auto width = static_cast<size_t>(entry.layout.pull_width);
  Value whole;
  auto& tensor = whole.as<Tensor>();
  MILLRACE_RETURN_IF_ERROR(tensor.resize(DType::kFloat32, {height, entry.layout.pull_width}));
  std::vector<int64_t> ids;
  for (int64_t begin = 0; begin < height; begin += kRowsAtOnce) {
    ids.resize(static_cast<size_t>(std::min(kRowsAtOnce, height - begin)));
    std::iota(ids.begin(), ids.end(), begin);
    float* const to = tensor.data<float>() + static_cast<size_t>(begin) * width;
    MILLRACE_RETURN_IF_ERROR(
        client_->pull_sparse(entry.layout, ids, {to, ids.size() * width}, /*training=*/false));
  }
  return whole;
}

}  // namespace millrace::ps
