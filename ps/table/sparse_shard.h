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

/// What all shards of a table share.
struct ShardContext {
  const Accessor* accessor = nullptr;
  EntryPolicy entry;
  uint64_t seed = 0;
  bool create_on_pull = false;
  const std::atomic<float>* rate = nullptr;  ///< factor of the learning rates; null: 1
  size_t memory_rows = 0;                    ///< with a cold store: rows kept in memory; 0: all
};

/// Keys of one call that belong to a shard: `order` picks them from the call's arrays.
struct ShardBatch {
  const int64_t* keys = nullptr;
  const uint64_t* hashes = nullptr;
  std::span<const uint32_t> order;
};

/// One part of a sparse table: rows in a slab, an index over them, one lock.
///
/// Thread-safety: all calls from any threads; each holds the lock.
class SparseShard {
 public:
  /// \param cold  rows beyond memory; null: none
  SparseShard(const ShardContext& context, std::unique_ptr<ColdStore> cold);
  SparseShard(const SparseShard&) = delete;
  SparseShard& operator=(const SparseShard&) = delete;

  /// Writes what each key gives to its place in `out`. \param counts  accesses of each key in the
  /// call; null: 1 \param training  accesses count for the entry policy
  Status pull(const ShardBatch& batch, float* out, const int32_t* counts, bool training);
  /// \param values  push values of the call \param touched  told of the position of each row that
  /// took one, if not null
  Status push(const ShardBatch& batch, const float* values, std::vector<uint32_t>* touched);
  /// Gives rows the values of pulls; makes them where they are missing.
  Status set(const ShardBatch& batch, const float* pulled, std::vector<uint32_t>* touched);
  /// Calls the function with every row, in order of keys; with a cold store also with those that
  /// are not in memory, of which it gets a copy. Errors: the first of the function.
  Status visit(const std::function<Status(uint64_t key, float* row)>& visitor);
  /// Puts a whole row, as a file has it.
  Status restore(uint64_t key, std::span<const float> row);
  /// Ends a day: drops rows that the accessor gives up. \returns how many
  StatusOr<int64_t> shrink();

  /// Keys that wait for their admission by count, with their accesses, in order of keys.
  void visit_waiting(const std::function<void(uint64_t key, float count)>& visitor) const;
  /// Lets a key wait with so many accesses. \param hash  of the key
  Status restore_waiting(uint64_t key, uint64_t hash, float count);
  /// Admissions by probability that were drawn.
  [[nodiscard]] uint64_t draws() const;
  void set_draws(uint64_t draws);
  /// Drops all rows, those of the cold store included, and all keys that wait.
  Status clear();

  /// Copies the key and what a pull gives of some rows by position.
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
  // Keys that wait for their admission by count: a row of one number each.
  RowSlab waiting_;
  RowIndex waiting_index_;
  uint64_t draws_ = 0;  ///< of admission by probability
  std::unique_ptr<ColdStore> cold_;
  std::vector<bool> recent_;  ///< with a cold store: rows used since the hand passed them
  size_t hand_ = 0;
};

}  // namespace millrace::ps
