#include "ps/table/sparse_shard.h"

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

#include "framework/base/errors.h"
#include "ps/table/keyed_random.h"

namespace millrace::ps {
namespace {

constexpr size_t kLine = 64;

void prefetch_bytes(const void* address, size_t bytes) {
  const auto* const first = static_cast<const std::byte*>(address);
  for (size_t at = 0; at < bytes; at += kLine) __builtin_prefetch(first + at);
  __builtin_prefetch(first + bytes - 1);
}

}  // namespace

SparseShard::SparseShard(const ShardContext& context, std::unique_ptr<ColdStore> cold)
    : context_(context),
      accessor_(*context.accessor),
      rows_(accessor_.row_floats()),
      waiting_(1),
      cold_(std::move(cold)) {}

// Calls visit(position in the call, row or kNotFound, probe). Works in blocks, so that the memory
// of the next keys is prefetched meanwhile.
template <typename Visit>
Status SparseShard::for_each_key(const ShardBatch& batch, bool may_create, Visit&& visit) {
  std::array<RowIndex::Probe, kBlock> probes;
  const size_t prefetched = std::min<size_t>(rows_.stride(), 4 * kLine);
  for (size_t at = 0; at < batch.order.size(); at += kBlock) {
    const auto block = batch.order.subspan(at, std::min(kBlock, batch.order.size() - at));
    MILLRACE_RETURN_IF_ERROR(make_room(may_create ? block.size() : 0));
    for (size_t i = 0; i < block.size(); ++i) {
      probes[i] = index_.probe(batch.hashes[block[i]]);
      __builtin_prefetch(index_.address(probes[i]));
    }
    for (size_t i = 0; i < block.size(); ++i) {
      const size_t candidate = index_.next(probes[i]);
      if (candidate != RowIndex::kNotFound) prefetch_bytes(rows_.address(candidate), prefetched);
    }
    for (size_t i = 0; i < block.size(); ++i) {
      const uint32_t position = block[i];
      const auto key = static_cast<uint64_t>(batch.keys[position]);
      const size_t row = find(key, probes[i]);
      MILLRACE_RETURN_IF_ERROR(visit(position, row, probes[i]));
    }
  }
  return Ok();
}

size_t SparseShard::find(uint64_t key, RowIndex::Probe& probe) const {
  for (;;) {
    const size_t candidate = index_.next(probe);
    if (candidate == RowIndex::kNotFound || rows_.key(candidate) == key) return candidate;
    index_.advance(probe);
  }
}

size_t SparseShard::create(uint64_t key, const RowIndex::Probe& probe) {
  const size_t row = rows_.append(key);
  index_.insert(probe, row);
  if (cold_ != nullptr) recent_.push_back(true);
  return row;
}

Status SparseShard::make_room(size_t rows) {
  if (index_.memory_bytes() == 0) MILLRACE_RETURN_IF_ERROR(index_.reset(rows));
  if (rows == 0) return Ok();
  MILLRACE_RETURN_IF_ERROR(rows_.reserve(rows_.size() + rows));
  if (index_.has_room(rows)) return Ok();
  MILLRACE_RETURN_IF_ERROR(index_.reset(rows_.size() + rows));
  return rebuild_index();
}

Status SparseShard::rebuild_index() {
  for (size_t row = 0; row < rows_.size(); ++row) {
    RowIndex::Probe probe = index_.probe(mix_bits(rows_.key(row)));
    while (index_.next(probe) != RowIndex::kNotFound) index_.advance(probe);
    index_.insert(probe, row);
  }
  return Ok();
}

Status SparseShard::pull(const ShardBatch& batch, float* out, const int32_t* counts,
                         bool training) {
  const std::lock_guard lock(mutex_);
  MILLRACE_RETURN_IF_ERROR(warm(batch));
  const auto width = static_cast<size_t>(accessor_.pull_floats());
  const bool filters = context_.entry.kind == EntryPolicy::Kind::kCountFilter ||
                       context_.entry.kind == EntryPolicy::Kind::kProbability;
  const bool creates = training && (filters || context_.create_on_pull);
  std::vector<float> absent(static_cast<size_t>(accessor_.row_floats()));
  const auto visit = [&](uint32_t position, size_t row, const RowIndex::Probe& probe) -> Status {
    const auto key = static_cast<uint64_t>(batch.keys[position]);
    float* const to = out + position * width;
    bool admitted = !filters;
    if (row == RowIndex::kNotFound && filters && training)
      MILLRACE_RETURN_IF_ERROR(count_access(key, batch.hashes[position],
                                            counts == nullptr ? 1 : counts[position], admitted));
    if (row == RowIndex::kNotFound && admitted && creates) {
      row = create(key, probe);
      accessor_.make(context_.seed, key, rows_.floats(row));
    }
    if (row != RowIndex::kNotFound) {
      accessor_.select(rows_.floats(row), to);
      if (cold_ != nullptr) recent_[row] = true;
    } else if (admitted) {
      accessor_.make(context_.seed, key,
                     absent.data());  // the initial values that its row would have
      accessor_.select(absent.data(), to);
    } else {
      std::fill_n(to, width, 0.0F);
    }
    return Ok();
  };
  MILLRACE_RETURN_IF_ERROR(for_each_key(batch, creates, visit));
  return evict();
}

Status SparseShard::push(const ShardBatch& batch, const float* values,
                         std::vector<uint32_t>* touched) {
  const std::lock_guard lock(mutex_);
  MILLRACE_RETURN_IF_ERROR(warm(batch));
  const auto width = static_cast<size_t>(accessor_.push_floats());
  const bool filters = context_.entry.kind == EntryPolicy::Kind::kCountFilter ||
                       context_.entry.kind == EntryPolicy::Kind::kProbability;
  const float factor = rate();
  const auto visit = [&](uint32_t position, size_t row, const RowIndex::Probe& probe) -> Status {
    const auto key = static_cast<uint64_t>(batch.keys[position]);
    if (row == RowIndex::kNotFound) {
      if (filters) return Ok();  // only pulls admit keys
      row = create(key, probe);
      accessor_.make(context_.seed, key, rows_.floats(row));
    }
    MILLRACE_RETURN_IF_ERROR(
        accessor_.update(context_.seed, key, rows_.floats(row), values + position * width, factor));
    if (cold_ != nullptr) recent_[row] = true;
    if (touched != nullptr) touched->push_back(static_cast<uint32_t>(row));
    return Ok();
  };
  MILLRACE_RETURN_IF_ERROR(for_each_key(batch, !filters, visit));
  return evict();
}

Status SparseShard::set(const ShardBatch& batch, const float* pulled,
                        std::vector<uint32_t>* touched) {
  const std::lock_guard lock(mutex_);
  MILLRACE_RETURN_IF_ERROR(warm(batch));
  const auto width = static_cast<size_t>(accessor_.pull_floats());
  const auto visit = [&](uint32_t position, size_t row, const RowIndex::Probe& probe) -> Status {
    const auto key = static_cast<uint64_t>(batch.keys[position]);
    if (row == RowIndex::kNotFound) {
      row = create(key, probe);
      accessor_.make(context_.seed, key, rows_.floats(row));
    }
    accessor_.assign(rows_.floats(row), pulled + position * width);
    if (touched != nullptr) touched->push_back(static_cast<uint32_t>(row));
    return Ok();
  };
  MILLRACE_RETURN_IF_ERROR(for_each_key(batch, /*may_create=*/true, visit));
  return evict();
}

Status SparseShard::count_access(uint64_t key, uint64_t hash, int32_t accesses, bool& admitted) {
  admitted = false;
  if (context_.entry.kind == EntryPolicy::Kind::kProbability) {
    for (int32_t i = 0; i < accesses && !admitted; ++i)
      admitted =
          KeyedRandom(context_.seed + 2 + draws_++, key).uniform() < context_.entry.probability;
    return Ok();
  }
  MILLRACE_ASSIGN_OR_RETURN(float* const count, waiting_count(key, hash));
  *count += static_cast<float>(accesses);
  admitted = *count >= static_cast<float>(context_.entry.count);
  return Ok();
}

// The access count of a waiting key; initially 0.
StatusOr<float*> SparseShard::waiting_count(uint64_t key, uint64_t hash) {
  if (waiting_index_.memory_bytes() == 0 || !waiting_index_.has_room(1)) {
    MILLRACE_RETURN_IF_ERROR(waiting_index_.reset(waiting_.size() + 1));
    for (size_t row = 0; row < waiting_.size(); ++row) {
      RowIndex::Probe probe = waiting_index_.probe(mix_bits(waiting_.key(row)));
      while (waiting_index_.next(probe) != RowIndex::kNotFound) waiting_index_.advance(probe);
      waiting_index_.insert(probe, row);
    }
  }
  MILLRACE_RETURN_IF_ERROR(waiting_.reserve(waiting_.size() + 1));
  RowIndex::Probe probe = waiting_index_.probe(hash);
  size_t row = waiting_index_.next(probe);
  while (row != RowIndex::kNotFound && waiting_.key(row) != key) {
    waiting_index_.advance(probe);
    row = waiting_index_.next(probe);
  }
  if (row == RowIndex::kNotFound) {
    row = waiting_.append(key);
    waiting_index_.insert(probe, row);
    *waiting_.floats(row) = 0;
  }
  return waiting_.floats(row);
}

void SparseShard::visit_waiting(const std::function<void(uint64_t, float)>& visitor) const {
  const std::lock_guard lock(mutex_);
  std::vector<std::pair<uint64_t, float>> order;
  for (size_t row = 0; row < waiting_.size(); ++row)
    order.emplace_back(waiting_.key(row), *waiting_.floats(row));
  std::sort(order.begin(), order.end());
  for (const auto& [key, count] : order) visitor(key, count);
}

Status SparseShard::restore_waiting(uint64_t key, uint64_t hash, float count) {
  const std::lock_guard lock(mutex_);
  MILLRACE_ASSIGN_OR_RETURN(float* const place, waiting_count(key, hash));
  *place = count;
  return Ok();
}

uint64_t SparseShard::draws() const {
  const std::lock_guard lock(mutex_);
  return draws_;
}

void SparseShard::set_draws(uint64_t draws) {
  const std::lock_guard lock(mutex_);
  draws_ = draws;
}

Status SparseShard::clear() {
  const std::lock_guard lock(mutex_);
  MILLRACE_RETURN_IF_ERROR(drop_rows([](size_t) { return true; }));
  waiting_.truncate(0);
  MILLRACE_RETURN_IF_ERROR(waiting_index_.reset(0));
  draws_ = 0;
  hand_ = 0;
  if (cold_ == nullptr) return Ok();
  std::vector<uint64_t> keys;
  MILLRACE_RETURN_IF_ERROR(cold_->visit([&](uint64_t key, std::span<const float>) {
    keys.push_back(key);
    return Ok();
  }));
  for (const uint64_t key : keys) MILLRACE_RETURN_IF_ERROR(cold_->erase(key));
  return cold_->flush();
}

Status SparseShard::visit(const std::function<Status(uint64_t, float*)>& visitor) {
  const std::lock_guard lock(mutex_);
  std::vector<std::pair<uint64_t, uint32_t>> order;
  order.reserve(rows_.size());
  for (size_t row = 0; row < rows_.size(); ++row)
    order.emplace_back(rows_.key(row), static_cast<uint32_t>(row));
  std::sort(order.begin(), order.end());
  size_t at = 0;
  const auto visit_until = [&](const auto& is_before) -> Status {
    for (; at < order.size() && is_before(order[at].first); ++at)
      MILLRACE_RETURN_IF_ERROR(visitor(order[at].first, rows_.floats(order[at].second)));
    return Ok();
  };
  if (cold_ != nullptr) {
    std::vector<float> copy(static_cast<size_t>(accessor_.row_floats()));
    const Status visited = cold_->visit([&](uint64_t key, std::span<const float> row) -> Status {
      MILLRACE_RETURN_IF_ERROR(visit_until([&](uint64_t other) { return other < key; }));
      if (at < order.size() && order[at].first == key) return Ok();  // the row in memory is newer
      std::copy(row.begin(), row.end(), copy.begin());
      return visitor(key, copy.data());
    });
    MILLRACE_RETURN_IF_ERROR(visited);
  }
  return visit_until([](uint64_t) { return true; });
}

Status SparseShard::restore(uint64_t key, std::span<const float> values) {
  const std::lock_guard lock(mutex_);
  MILLRACE_RETURN_IF_ERROR(make_room(1));
  RowIndex::Probe probe = index_.probe(mix_bits(key));
  size_t row = find(key, probe);
  if (row == RowIndex::kNotFound) row = create(key, probe);
  std::copy(values.begin(), values.end(), rows_.floats(row));
  accessor_.set_used_floats(rows_.floats(row), static_cast<int>(values.size()));
  return evict();
}

StatusOr<int64_t> SparseShard::shrink() {
  const std::lock_guard lock(mutex_);
  int64_t dropped = 0;
  std::vector<uint64_t> gone;
  MILLRACE_RETURN_IF_ERROR(drop_rows([&](size_t row) {
    const bool drops = accessor_.shrink(rows_.floats(row));
    dropped += drops ? 1 : 0;
    if (drops && cold_ != nullptr) gone.push_back(rows_.key(row));
    return drops;
  }));
  if (cold_ == nullptr) return dropped;
  // Stale copies of dropped rows must not reappear.
  for (const uint64_t key : gone) MILLRACE_RETURN_IF_ERROR(cold_->erase(key));
  std::vector<std::pair<uint64_t, std::vector<float>>> changed;
  MILLRACE_RETURN_IF_ERROR(cold_->visit([&](uint64_t key, std::span<const float> row) -> Status {
    RowIndex::Probe probe = index_.probe(mix_bits(key));
    if (index_.memory_bytes() > 0 && find(key, probe) != RowIndex::kNotFound) return Ok();
    changed.emplace_back(key, std::vector<float>(row.begin(), row.end()));
    return Ok();
  }));
  for (auto& [key, row] : changed) {
    if (accessor_.shrink(row.data())) {
      ++dropped;
      MILLRACE_RETURN_IF_ERROR(cold_->erase(key));
    } else {
      MILLRACE_RETURN_IF_ERROR(cold_->put(key, row));
    }
  }
  MILLRACE_RETURN_IF_ERROR(cold_->flush());
  return dropped;
}

Status SparseShard::drop_rows(const std::function<bool(size_t)>& drops) {
  size_t kept = 0;
  const size_t count = rows_.size();
  for (size_t row = 0; row < count; ++row) {
    if (drops(row)) continue;
    rows_.copy(row, kept);
    if (cold_ != nullptr) recent_[kept] = recent_[row];
    ++kept;
  }
  if (kept == count) return Ok();
  rows_.truncate(kept);
  if (cold_ != nullptr) recent_.resize(kept);
  MILLRACE_RETURN_IF_ERROR(index_.reset(kept));
  return rebuild_index();
}

// Loads those rows of a batch into memory that are only in the cold store.
Status SparseShard::warm(const ShardBatch& batch) {
  if (cold_ == nullptr) return Ok();
  std::vector<uint64_t> missing;
  MILLRACE_RETURN_IF_ERROR(for_each_key(
      batch, /*may_create=*/false, [&](uint32_t position, size_t row, const RowIndex::Probe&) {
        if (row == RowIndex::kNotFound)
          missing.push_back(static_cast<uint64_t>(batch.keys[position]));
        return Ok();
      }));
  if (missing.empty()) return Ok();
  std::sort(missing.begin(), missing.end());
  missing.erase(std::unique(missing.begin(), missing.end()), missing.end());
  MILLRACE_RETURN_IF_ERROR(make_room(missing.size()));
  return cold_->get(missing, [&](size_t i, std::span<const float> values) {
    RowIndex::Probe probe = index_.probe(mix_bits(missing[i]));
    if (find(missing[i], probe) != RowIndex::kNotFound) return Ok();
    const size_t row = create(missing[i], probe);
    std::copy(values.begin(), values.end(), rows_.floats(row));
    return Ok();
  });
}

// Moves rows that were not used recently to the cold store, an eighth at a time.
Status SparseShard::evict() {
  if (cold_ == nullptr || context_.memory_rows == 0 || rows_.size() <= context_.memory_rows)
    return Ok();
  const size_t count = rows_.size();
  const size_t wanted = count - context_.memory_rows + context_.memory_rows / 8;
  std::vector<bool> evicted(count);
  for (size_t gone = 0, seen = 0; gone < wanted && seen < 2 * count; ++seen) {
    if (hand_ >= count) hand_ = 0;
    const size_t row = hand_++;
    if (evicted[row]) continue;
    if (recent_[row]) {
      recent_[row] = false;
      continue;
    }
    evicted[row] = true;
    ++gone;
    MILLRACE_RETURN_IF_ERROR(cold_->put(
        rows_.key(row), {rows_.floats(row), static_cast<size_t>(accessor_.row_floats())}));
  }
  MILLRACE_RETURN_IF_ERROR(cold_->flush());
  return drop_rows([&](size_t row) { return evicted[row]; });
}

void SparseShard::read(std::span<const uint32_t> rows, int64_t* keys, float* pulled) const {
  const std::lock_guard lock(mutex_);
  const auto width = static_cast<size_t>(accessor_.pull_floats());
  for (size_t i = 0; i < rows.size(); ++i) {
    keys[i] = static_cast<int64_t>(rows_.key(rows[i]));
    accessor_.select(rows_.floats(rows[i]), pulled + i * width);
  }
}

size_t SparseShard::size() const {
  const std::lock_guard lock(mutex_);
  return rows_.size();
}

size_t SparseShard::memory_bytes() const {
  const std::lock_guard lock(mutex_);
  return rows_.memory_bytes() + index_.memory_bytes() + waiting_.memory_bytes() +
         waiting_index_.memory_bytes();
}

}  // namespace millrace::ps
