#include <algorithm>
#include <cstring>
#include <utility>

#include "framework/base/errors.h"
#include "ps/table/keyed_random.h"
#include "ps/table/sparse_table.h"
#include "ps/table/state_parts.h"
#include "ps/values.h"

// Saving and restoring the state of a sparse table for snapshots.
namespace millrace::ps {
StatusOr<TableState> SparseTable::state() {
  std::vector<int64_t> keys;
  std::vector<float> rows;
  std::vector<int64_t> waiting;
  std::vector<float> counts;
  std::vector<int64_t> draws;
  const auto width = static_cast<size_t>(accessor_->row_floats());
  for (const auto& shard : shards_) {
    MILLRACE_RETURN_IF_ERROR(shard->visit([&](uint64_t key, float* row) -> Status {
      keys.push_back(static_cast<int64_t>(key));
      rows.insert(rows.end(), row, row + width);
      return Ok();
    }));
    shard->visit_waiting([&](uint64_t key, float count) {
      waiting.push_back(static_cast<int64_t>(key));
      counts.push_back(count);
    });
    draws.push_back(static_cast<int64_t>(shard->draws()));
  }
  const auto n = static_cast<int64_t>(keys.size());
  const auto w = static_cast<int64_t>(waiting.size());
  TableState state;
  MILLRACE_ASSIGN_OR_RETURN(state[kKeysPart], copied_tensor(keys, DType::kInt64, {n}));
  MILLRACE_ASSIGN_OR_RETURN(state[kRowsPart],
                            copied_tensor(rows, DType::kFloat32, {n, static_cast<int64_t>(width)}));
  MILLRACE_ASSIGN_OR_RETURN(state[kWaitingKeysPart], copied_tensor(waiting, DType::kInt64, {w}));
  MILLRACE_ASSIGN_OR_RETURN(state[kWaitingCountsPart], copied_tensor(counts, DType::kFloat32, {w}));
  MILLRACE_ASSIGN_OR_RETURN(
      state[kDrawsPart], copied_tensor(draws, DType::kInt64, {static_cast<int64_t>(draws.size())}));
  return state;
}

Status SparseTable::set_state(const TableState& state) {
  const auto width = static_cast<size_t>(accessor_->row_floats());
  MILLRACE_ASSIGN_OR_RETURN(const auto keys,
                            state_part<int64_t>(state, kKeysPart, DType::kInt64, kAnyCount));
  MILLRACE_ASSIGN_OR_RETURN(
      const auto rows, state_part<float>(state, kRowsPart, DType::kFloat32, keys.size() * width));
  MILLRACE_ASSIGN_OR_RETURN(const auto waiting,
                            state_part<int64_t>(state, kWaitingKeysPart, DType::kInt64, kAnyCount));
  MILLRACE_ASSIGN_OR_RETURN(const auto counts, state_part<float>(state, kWaitingCountsPart,
                                                                 DType::kFloat32, waiting.size()));
  MILLRACE_ASSIGN_OR_RETURN(const auto draws,
                            state_part<int64_t>(state, kDrawsPart, DType::kInt64, kAnyCount));
  MILLRACE_RETURN_IF_ERROR(clear());
  for (size_t i = 0; i < keys.size(); ++i) {
    const auto key = static_cast<uint64_t>(keys[i]);
    MILLRACE_RETURN_IF_ERROR(
        shards_[part_of(mix_bits(key))]->restore(key, rows.subspan(i * width, width)));
  }
  for (size_t i = 0; i < waiting.size(); ++i) {
    const auto key = static_cast<uint64_t>(waiting[i]);
    const uint64_t hash = mix_bits(key);
    MILLRACE_RETURN_IF_ERROR(shards_[part_of(hash)]->restore_waiting(key, hash, counts[i]));
  }
  // with other partitions, none may repeat draws that were made for its keys elsewhere
  const int64_t most = draws.empty() ? 0 : *std::ranges::max_element(draws);
  for (size_t part = 0; part < shards_.size(); ++part)
    shards_[part]->set_draws(
        static_cast<uint64_t>(draws.size() == shards_.size() ? draws[part] : most));
  return Ok();
}

Status SparseTable::clear() {
  for (const auto& shard : shards_) MILLRACE_RETURN_IF_ERROR(shard->clear());
  return Ok();
}

}  // namespace millrace::ps
