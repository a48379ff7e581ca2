#include "ps/table/sparse_geo_table.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "framework/base/errors.h"

namespace millrace::ps {

void SparseGeoTable::Changed::add(uint32_t row) {
  if (row >= is_in.size()) is_in.resize(row + 1);
  if (is_in[row]) return;
  is_in[row] = true;
  rows.push_back(row);
}

StatusOr<std::unique_ptr<SparseGeoTable>> SparseGeoTable::create(SparseTableOptions options,
                                                                 int trainers) {
  if (trainers < 1) return InvalidArgument("trainers is {}, expected at least 1", trainers);
  if (options.accessor.kind != AccessorOptions::Kind::kCommMerge)
    return InvalidArgument("table {}: a geo table adds deltas, expected CommMergeAccessor",
                           options.table_id);
  // Positions of rows must not change, but rows on disk change theirs.
  if (!options.disk_path.empty())
    return InvalidArgument("table {}: a geo table must be in memory, but disk_path is set",
                           options.table_id);
  auto table = std::unique_ptr<SparseGeoTable>(new SparseGeoTable(std::move(options), trainers));
  MILLRACE_RETURN_IF_ERROR(table->init());
  for (auto& parts : table->changed_) parts.resize(table->shard_count());
  return table;
}

Status SparseGeoTable::push(PushKind kind, const TableCall& call) {
  MILLRACE_ASSIGN_OR_RETURN(const auto keys, ids_of(call, 0));
  const auto width = static_cast<size_t>(accessor().push_floats());
  MILLRACE_ASSIGN_OR_RETURN(const auto values, floats_of(call, 1, keys.size() * width));
  Touched touched(shard_count());
  const bool sets = kind == PushKind::kValues;
  MILLRACE_RETURN_IF_ERROR(push_and_record(keys, values.data(), sets, &touched));
  if (sets) return Ok();  // initial values are known to all trainers
  const std::lock_guard lock(mutex_);
  for (auto& parts : changed_) {
    for (size_t part = 0; part < parts.size(); ++part) {
      Changed& changed = parts[part];
      for (const uint32_t row : touched[part]) changed.add(row);
    }
  }
  return Ok();
}

Status SparseGeoTable::set_state(const TableState& state) {
  MILLRACE_RETURN_IF_ERROR(SparseTable::set_state(state));
  const std::lock_guard lock(mutex_);
  for (auto& parts : changed_) {
    for (size_t part = 0; part < parts.size(); ++part) {
      parts[part] = {};
      for (uint32_t row = 0; row < shard(part).size(); ++row) parts[part].add(row);
    }
  }
  std::ranges::fill(last_sequence_, uint64_t{0});
  return Ok();
}

Status SparseGeoTable::pull(PullKind kind, const TableCall& call, Value& reply) {
  if (kind != PullKind::kChangedRows) return SparseTable::pull(kind, call, reply);
  return pull_changed(call.trainer, reply.as<SelectedRows>(), call.sequence);
}

Status SparseGeoTable::pull_changed(int trainer, SelectedRows& changed, uint64_t sequence) {
  if (trainer < 0 || trainer >= static_cast<int>(changed_.size()))
    return InvalidArgument("table {} has {} trainers, found trainer {}", options().table_id,
                           changed_.size(), trainer);
  std::vector<std::vector<uint32_t>> parts(shard_count());
  size_t count = 0;
  {
    const std::lock_guard lock(mutex_);
    uint64_t& last = last_sequence_[static_cast<size_t>(trainer)];
    const bool repeat = sequence != 0 && sequence == last;
    last = sequence;
    for (size_t part = 0; part < parts.size(); ++part) {
      Changed& own = changed_[static_cast<size_t>(trainer)][part];
      if (repeat) {
        for (const uint32_t row : own.given) own.add(row);
      }
      for (const uint32_t row : own.rows) own.is_in[row] = false;
      parts[part] = std::exchange(own.rows, {});
      own.given = parts[part];
      count += parts[part].size();
    }
  }
  const auto width = static_cast<size_t>(accessor().pull_floats());
  std::vector<int64_t> keys(count);
  std::vector<float> values(count * width);
  for (size_t part = 0, at = 0; part < parts.size(); at += parts[part].size(), ++part)
    shard(part).read(parts[part], keys.data() + at, values.data() + at * width);
  std::vector<size_t> order(count);
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return keys[a] < keys[b]; });
  MILLRACE_RETURN_IF_ERROR(changed.value.resize(
      DType::kFloat32, {static_cast<int64_t>(count), static_cast<int64_t>(width)}));
  changed.rows.clear();
  changed.height = 0;
  float* to = changed.value.data<float>();
  for (const size_t i : order) {
    changed.rows.push_back(keys[i]);
    changed.height = std::max(changed.height, keys[i] + 1);
    to = std::copy_n(values.data() + i * width, width, to);
  }
  return Ok();
}

}  // namespace millrace::ps
