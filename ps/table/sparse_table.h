#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ps/table/accessor.h"
#include "ps/table/entry_policy.h"
#include "ps/table/sparse_shard.h"
#include "ps/table/table.h"

namespace millrace::ps {

/// Settings of a sparse table.
struct SparseTableOptions {
  int table_id = 0;
  std::string name;
  AccessorOptions accessor;
  EntryPolicy entry;
  uint64_t seed = 0;  ///< of the table; initial values of rows depend only on it and their key
  /// Partitions, each with a lock; a power of two. A partition holds at most 16.7 million rows.
  int partitions = 16;
  /// Pulls for training create rows. Otherwise they return the initial values of the row, and the
  /// first push creates it.
  bool create_on_pull = false;
  std::optional<int64_t> padding;  ///< id of padding: reads as zeros, never pushed
  /// Folder for rows that do not fit into memory; empty: all rows are in memory. It must be new,
  /// empty, or have been one of a table.
  std::string disk_path;
  size_t memory_rows = 0;  ///< with disk_path: approximate number of rows in memory
};

/// Rows by key (MemorySparseTable, SSDSparseTable).
///
/// A pull returns accessor().pull_floats() floats per key; a push takes push_floats(). If a key
/// occurs several times in a push, each occurrence is applied separately. Cost: one lock per
/// partition and call; memory accesses are prefetched for 32 keys at a time.
class SparseTable : public Table {
 public:
  /// Errors: kInvalidArgument naming the field; kUnimplemented and kIo for the folder.
  static StatusOr<std::unique_ptr<SparseTable>> create(SparseTableOptions options);

  [[nodiscard]] const SparseTableOptions& options() const { return options_; }
  [[nodiscard]] const Accessor& accessor() const { return *accessor_; }

  /// \param out       keys.size() * pull_floats()
  /// \param counts    how often each key is used; empty: once. For the entry policy
  /// \param training  count the accesses
  Status pull(std::span<const int64_t> keys, float* out, std::span<const int32_t> counts = {},
              bool training = true);
  /// \param values  keys.size() * push_floats()
  Status push(std::span<const int64_t> keys, const float* values);
  /// Sets rows to values in the form that pulls return.
  Status set(std::span<const int64_t> keys, const float* pulled);
  /// Visits every row, partition by partition; the function may change it. Other calls to the
  /// partition wait.
  Status visit(const std::function<Status(uint64_t key, float* row)>& visitor);
  /// Sets a whole row as read from a file (its used floats). Errors: kInvalidArgument for its
  /// length.
  Status restore(uint64_t key, std::span<const float> row);
  /// All rows and the waiting keys of the entry policy. Locks one partition at a time. A table with
  /// a folder needs memory for all of its rows.
  StatusOr<TableState> state() override;
  Status set_state(const TableState& state) override;
  /// Drops all rows.
  Status clear();
  /// Ends a day (Accessor::shrink()). \returns number of rows dropped
  StatusOr<int64_t> shrink();

  [[nodiscard]] std::string_view table_class() const override {
    return options_.disk_path.empty() ? "MemorySparseTable" : "SSDSparseTable";
  }
  /// Arguments: ids [, counts of accesses as i64]; "infer": accesses are not counted.
  Status pull(PullKind kind, const TableCall& call, Value& reply) override;
  /// Arguments: ids, values. With "shrink", which ends a day: none.
  Status push(PushKind kind, const TableCall& call) override;
  [[nodiscard]] int64_t size() const override;  ///< rows in memory
  [[nodiscard]] int64_t memory_bytes() const override;
  void share_rate(const std::atomic<float>* rate) override { context_.rate = rate; }

 protected:
  explicit SparseTable(SparseTableOptions options) : options_(std::move(options)) {}
  Status init();
  /// By partition: rows that a push or set has changed.
  using Touched = std::vector<std::vector<uint32_t>>;
  Status push_and_record(std::span<const int64_t> keys, const float* values, bool sets,
                         Touched* touched);
  [[nodiscard]] SparseShard& shard(size_t index) { return *shards_[index]; }
  [[nodiscard]] size_t shard_count() const { return shards_.size(); }

 private:
  /// The keys of a call by partition; the object is reused between calls.
  struct Split {
    std::vector<uint64_t> hashes;
    std::vector<uint32_t> order;   ///< positions of the keys of partition 0, 1, ...
    std::vector<uint32_t> starts;  ///< start of each partition in `order`, and the end
  };
  std::unique_ptr<Split> split(std::span<const int64_t> keys);
  void keep(std::unique_ptr<Split> split);
  template <typename Body>
  Status for_each_part(std::span<const int64_t> keys, Body&& body);
  [[nodiscard]] size_t part_of(uint64_t hash) const {
    return hash >> 8U & (shards_.size() - 1);  // the index uses the other bits
  }

  SparseTableOptions options_;
  std::unique_ptr<Accessor> accessor_;
  ShardContext context_;
  std::vector<std::unique_ptr<SparseShard>> shards_;
  std::mutex spare_mutex_;
  std::vector<std::unique_ptr<Split>> spare_;
};

}  // namespace millrace::ps
