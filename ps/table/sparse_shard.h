#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <span>
#include <vector>

#include "framework/base/status.h"
#include "ps/table/accessor.h"
#include "ps/table/cold_store.h"
#include "ps/table/entry_policy.h"
#include "ps/table/row_index.h"
#include "ps/table/row_slab.h"

namespace millrace::ps {

/// Settings that all shards of a table share.
struct ShardContext {
  const Accessor* accessor = nullptr;
  EntryPolicy entry;
  uint64_t seed = 0;
  bool create_on_pull = false;
  const std::atomic<float>* rate = nullptr;  ///< factor for the learning rates; null: 1
  size_t memory_rows = 0;                    ///< with a cold store: rows kept in memory; 0: all
};

/// The keys of one call that belong to a shard; `order` has their positions in the arrays of the
/// call.
struct ShardBatch {
  const int64_t* keys = nullptr;
  const uint64_t* hashes = nullptr;
  std::span<const uint32_t> order;
};

/// One partition of a sparse table: rows in a slab, an index of them, and one lock.
///
/// Thread-safety: all calls from any threads; each holds the lock.
class SparseShard {
 public:
  /// \param cold  storage for rows that do not fit into memory; null: none
  SparseShard(const ShardContext& context, std::unique_ptr<ColdStore> cold);
  SparseShard(const SparseShard&) = delete;
  SparseShard& operator=(const SparseShard&) = delete;

  /// Writes what a pull returns for each key to its position in `out`.
  /// \param counts    accesses of each key in the call; null: 1
  /// \param training  count the accesses for the entry policy
  Status pull(const ShardBatch& batch, float* out, const int32_t* counts, bool training);
  /// \param values   push values of the call
  /// \param touched  receives the positions of updated rows, if not null
  Status push(const ShardBatch& batch, const float* values, std::vector<uint32_t>* touched);
  /// Sets rows to pulled values; creates missing rows.
  Status set(const ShardBatch& batch, const float* pulled, std::vector<uint32_t>* touched);
  /// Calls the function for every row, ordered by key; with a cold store also for rows that are not
  /// in memory, of which it gets a copy. Errors: the first error of the function.
  Status visit(const std::function<Status(uint64_t key, float* row)>& visitor);
  /// Sets a whole row, as read from a file.
  Status restore(uint64_t key, std::span<const float> row);
  /// Ends a day: drops the rows for which the accessor requests it. \returns their number
  StatusOr<int64_t> shrink();

  /// Visits the keys that wait for admission by count, with their accesses, ordered by key.
  void visit_waiting(const std::function<void(uint64_t key, float count)>& visitor) const;
  /// Adds a waiting key with that many accesses. \param hash  of the key
  Status restore_waiting(uint64_t key, uint64_t hash, float count);
  /// Number of random draws made for admission by probability.
  [[nodiscard]] uint64_t draws() const;
  void set_draws(uint64_t draws);
  /// Drops all rows, including those of the cold store, and all waiting keys.
  Status clear();

  /// Copies keys and pulled values of some rows, given by position.
  void read(std::span<const uint32_t> rows, int64_t* keys, float* pulled) const;

  [[nodiscard]] size_t size() const;
  [[nodiscard]] size_t memory_bytes() const;

 private:
  static constexpr size_t kBlock = 32;

  template <typename Visit>
  Status for_each_key(const ShardBatch& batch, bool may_create, Visit&& visit);
  Status make_room(size_t rows);
  Status rebuild_index();
  size_t find(uint64_t key, RowIndex::Probe& probe) const;
  size_t create(uint64_t key, const RowIndex::Probe& probe);
  Status count_access(uint64_t key, uint64_t hash, int32_t accesses, bool& admitted);
  StatusOr<float*> waiting_count(uint64_t key, uint64_t hash);
  Status warm(const ShardBatch& batch);
  Status evict();
  Status drop_rows(const std::function<bool(size_t)>& drops);
  [[nodiscard]] float rate() const {
    return context_.rate == nullptr ? 1 : context_.rate->load(std::memory_order_relaxed);
  }

  const ShardContext& context_;
  const Accessor& accessor_;
  mutable std::mutex mutex_;
  RowSlab rows_;
  RowIndex index_;
  // Keys that wait for admission by count: each row has a single number.
  RowSlab waiting_;
  RowIndex waiting_index_;
  uint64_t draws_ = 0;  ///< random draws for admission by probability
  std::unique_ptr<ColdStore> cold_;
  /// With a cold store: rows used since the clock hand last passed them.
  std::vector<bool> recent_;
  size_t hand_ = 0;
};

}  // namespace millrace::ps
