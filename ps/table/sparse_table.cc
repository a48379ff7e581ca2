#include "ps/table/sparse_table.h"

#include <algorithm>
#include <bit>
#include <filesystem>
#include <system_error>
#include <utility>

#include "framework/base/errors.h"
#include "framework/base/file.h"
#include "ps/table/keyed_random.h"

namespace millrace::ps {
namespace {

// Fails unless the folder was made by a table or is empty, because servers empty the tables that
// they find there at their start.
Status claim_folder(const std::string& folder) {
  namespace fs = std::filesystem;
  const fs::path mark = fs::path(folder) / "millrace_table";
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) return IoError("cannot create the folder: {}", error.message()).in_file(folder);
  if (fs::exists(mark, error)) return Ok();
  if (!fs::is_empty(folder, error) || error) {
    return InvalidArgument("the folder has files that no typed table has written")
        .in_file(folder)
        .with_hint("give a new or empty folder as disk_path");
  }
  return write_file_atomically(mark.string(), "rows of a typed table of millrace\n", Replace::kYes);
}

}  // namespace

StatusOr<std::unique_ptr<SparseTable>> SparseTable::create(SparseTableOptions options) {
  auto table = std::unique_ptr<SparseTable>(new SparseTable(std::move(options)));
  MILLRACE_RETURN_IF_ERROR(table->init());
  return table;
}

Status SparseTable::init() {
  if (options_.partitions < 1 || !std::has_single_bit(static_cast<unsigned>(options_.partitions)))
    return InvalidArgument("table {} has {} partitions, expected a power of two", options_.table_id,
                           options_.partitions);
  MILLRACE_ASSIGN_OR_RETURN(accessor_, Accessor::create(options_.accessor));
  const auto parts = static_cast<size_t>(options_.partitions);
  context_.accessor = accessor_.get();
  context_.entry = options_.entry;
  if (context_.entry.kind == EntryPolicy::Kind::kCountFilter && context_.entry.count < 1)
    context_.entry.kind = EntryPolicy::Kind::kNone;
  context_.seed = mix_bits(options_.seed) + static_cast<uint64_t>(options_.table_id);
  context_.create_on_pull = options_.create_on_pull;
  context_.memory_rows =
      options_.disk_path.empty() ? 0 : std::max<size_t>(64, options_.memory_rows / parts);
  if (!options_.disk_path.empty()) MILLRACE_RETURN_IF_ERROR(claim_folder(options_.disk_path));
  for (size_t part = 0; part < parts; ++part) {
    std::unique_ptr<ColdStore> cold;
    if (!options_.disk_path.empty()) {
      MILLRACE_ASSIGN_OR_RETURN(
          cold, open_rocks_store(fmt::format("{}/part-{:03}", options_.disk_path, part)));
    }
    shards_.push_back(std::make_unique<SparseShard>(context_, std::move(cold)));
  }
  return Ok();
}

std::unique_ptr<SparseTable::Split> SparseTable::split(std::span<const int64_t> keys) {
  std::unique_ptr<Split> split;
  {
    const std::lock_guard lock(spare_mutex_);
    if (!spare_.empty()) {
      split = std::move(spare_.back());
      spare_.pop_back();
    }
  }
  if (split == nullptr) split = std::make_unique<Split>();
  split->hashes.resize(keys.size());
  split->order.resize(keys.size());
  split->starts.assign(shards_.size() + 2, 0);
  // starts is shifted by two, so that filling `order` leaves each partition's start in place
  for (size_t i = 0; i < keys.size(); ++i) {
    const uint64_t hash = mix_bits(static_cast<uint64_t>(keys[i]));
    split->hashes[i] = hash;
    if (options_.padding != keys[i]) ++split->starts[part_of(hash) + 2];
  }
  for (size_t part = 2; part < split->starts.size(); ++part)
    split->starts[part] += split->starts[part - 1];
  for (size_t i = 0; i < keys.size(); ++i) {
    if (options_.padding == keys[i]) continue;
    split->order[split->starts[part_of(split->hashes[i]) + 1]++] = static_cast<uint32_t>(i);
  }
  return split;
}

void SparseTable::keep(std::unique_ptr<Split> split) {
  const std::lock_guard lock(spare_mutex_);
  spare_.push_back(std::move(split));
}

// Calls body(partition, batch) for the partitions that have keys.
template <typename Body>
Status SparseTable::for_each_part(std::span<const int64_t> keys, Body&& body) {
  if (keys.size() > UINT32_MAX)
    return InvalidArgument("{} keys in one call, expected at most {}", keys.size(), UINT32_MAX);
  std::unique_ptr<Split> parts = split(keys);
  Status status;
  for (size_t part = 0; part < shards_.size() && status.ok(); ++part) {
    const uint32_t begin = parts->starts[part];
    const uint32_t end = parts->starts[part + 1];
    if (begin == end) continue;
    const std::span<const uint32_t> order(parts->order.data() + begin, end - begin);
    status = body(part, ShardBatch{keys.data(), parts->hashes.data(), order});
  }
  keep(std::move(parts));
  return status;
}

Status SparseTable::pull(std::span<const int64_t> keys, float* out, std::span<const int32_t> counts,
                         bool training) {
  if (!counts.empty() && counts.size() != keys.size())
    return InvalidArgument("table {}: {} counts for {} keys", options_.table_id, counts.size(),
                           keys.size());
  if (options_.padding) {
    const auto width = static_cast<size_t>(accessor_->pull_floats());
    for (size_t i = 0; i < keys.size(); ++i) {
      if (options_.padding == keys[i]) std::fill_n(out + i * width, width, 0.0F);
    }
  }
  const int32_t* const accesses = counts.empty() ? nullptr : counts.data();
  return for_each_part(keys, [&](size_t part, const ShardBatch& batch) {
    return shards_[part]->pull(batch, out, accesses, training);
  });
}

Status SparseTable::push(std::span<const int64_t> keys, const float* values) {
  return push_and_record(keys, values, /*sets=*/false, nullptr);
}

Status SparseTable::set(std::span<const int64_t> keys, const float* pulled) {
  return push_and_record(keys, pulled, /*sets=*/true, nullptr);
}

Status SparseTable::push_and_record(std::span<const int64_t> keys, const float* values, bool sets,
                                    Touched* touched) {
  return for_each_part(keys, [&](size_t part, const ShardBatch& batch) {
    std::vector<uint32_t>* const rows = touched == nullptr ? nullptr : &(*touched)[part];
    return sets ? shards_[part]->set(batch, values, rows)
                : shards_[part]->push(batch, values, rows);
  });
}

Status SparseTable::visit(const std::function<Status(uint64_t, float*)>& visitor) {
  for (const auto& shard : shards_) MILLRACE_RETURN_IF_ERROR(shard->visit(visitor));
  return Ok();
}

Status SparseTable::restore(uint64_t key, std::span<const float> row) {
  std::vector<float> probe(static_cast<size_t>(accessor_->row_floats()));
  accessor_->set_used_floats(probe.data(), static_cast<int>(row.size()));
  const auto all = static_cast<size_t>(accessor_->row_floats());
  if (row.size() != all && static_cast<int>(row.size()) != accessor_->used_floats(probe.data()))
    return InvalidArgument("table {}: a row of {} floats, expected {}", options_.table_id,
                           row.size(), all);
  return shards_[part_of(mix_bits(key))]->restore(key, row);
}

StatusOr<int64_t> SparseTable::shrink() {
  int64_t dropped = 0;
  for (const auto& shard : shards_) {
    MILLRACE_ASSIGN_OR_RETURN(const int64_t some, shard->shrink());
    dropped += some;
  }
  return dropped;
}

Status SparseTable::pull(PullKind kind, const TableCall& call, Value& reply) {
  MILLRACE_ASSIGN_OR_RETURN(const auto keys, ids_of(call, 0));
  std::vector<int32_t> counts;
  if (call.args.size() > 1) {
    MILLRACE_ASSIGN_OR_RETURN(const auto given, ids_of(call, 1));
    for (const int64_t count : given)
      counts.push_back(static_cast<int32_t>(std::clamp<int64_t>(count, 0, INT32_MAX)));
  }
  auto& rows = reply.as<Tensor>();
  MILLRACE_RETURN_IF_ERROR(rows.resize(
      DType::kFloat32, {static_cast<int64_t>(keys.size()), int64_t{accessor_->pull_floats()}}));
  return pull(keys, rows.data<float>(), counts, kind != PullKind::kQuiet);
}

Status SparseTable::push(PushKind kind, const TableCall& call) {
  if (kind == PushKind::kEndDay) return shrink().status();
  MILLRACE_ASSIGN_OR_RETURN(const auto keys, ids_of(call, 0));
  const bool sets = kind == PushKind::kValues;
  const int width = sets ? accessor_->pull_floats() : accessor_->push_floats();
  MILLRACE_ASSIGN_OR_RETURN(const auto values,
                            floats_of(call, 1, keys.size() * static_cast<size_t>(width)));
  return push_and_record(keys, values.data(), sets, nullptr);
}

int64_t SparseTable::size() const {
  int64_t rows = 0;
  for (const auto& shard : shards_) rows += static_cast<int64_t>(shard->size());
  return rows;
}

int64_t SparseTable::memory_bytes() const {
  int64_t bytes = 0;
  for (const auto& shard : shards_) bytes += static_cast<int64_t>(shard->memory_bytes());
  return bytes;
}

}  // namespace millrace::ps
