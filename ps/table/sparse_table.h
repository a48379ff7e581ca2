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

/// What a snapshot has of a table: tensors by name.
using TableState = std::map<std::string, Value>;

/// What a sparse table is.
struct SparseTableOptions {
  int table_id = 0;
  std::string name;
  AccessorOptions accessor;
  EntryPolicy entry;
  uint64_t seed = 0;  ///< of the table; new rows depend on it and their key alone
  /// Parts with a lock each; a power of two. A part holds at most 16.7 million rows.
  int partitions = 16;
  /// Pulls for training make rows. Else they give what the row would begin with, and the first push
  /// makes it.
  bool create_on_pull = false;
  std::optional<int64_t> padding;  ///< an id that stands for nothing: zeros, never pushed
  /// Folder of the rows that memory has no room for; empty: all are in memory.
  std::string disk_path;
  size_t memory_rows = 0;  ///< with disk_path: rows in memory, about
};

/// Rows by key (MemorySparseTable, SSDSparseTable).
///
/// A pull gives accessor().pull_floats() floats a key; a push takes push_floats(). Of a key that
/// occurs several times each push counts by itself. Cost: one lock a part and call, memory accesses
/// of 32 keys at a time.
class SparseTable : public Table {
 public:
  /// Errors: kInvalidArgument naming the field; kUnimplemented, kIo for the folder.
  static StatusOr<std::unique_ptr<SparseTable>> create(SparseTableOptions options);

  [[nodiscard]] const SparseTableOptions& options() const { return options_; }
  [[nodiscard]] const Accessor& accessor() const { return *accessor_; }

  /// \param out       keys.size() * pull_floats()
  /// \param counts    how often each key is used; empty: once. For the entry policy
  /// \param training  the accesses count
  Status pull(std::span<const int64_t> keys, float* out, std::span<const int32_t> counts = {},
              bool training = true);
  /// \param values  keys.size() * push_floats()
  Status push(std::span<const int64_t> keys, const float* values);
  /// Gives rows these values, which are as pulls have them.
  Status set(std::span<const int64_t> keys, const float* pulled);
  /// Every row, part by part; the function may change it. Within a part others wait.
  Status visit(const std::function<Status(uint64_t key, float* row)>& visitor);
  /// A whole row, as a file has it (its used floats). Errors: kInvalidArgument for its length.
  Status restore(uint64_t key, std::span<const float> row);
  /// All rows, and what the entry policy knows of keys that wait; part by part, so the caller keeps
  /// pushes away. A table with a folder takes as much memory for it as all of its rows.
  StatusOr<TableState> state();
  /// Takes that up in place of what is here. Errors: kInvalidData naming what does not fit.
  Status set_state(const TableState& state);
  /// Drops all rows.
  Status clear();
  /// Ends a day (Accessor::shrink()). \returns rows dropped
  StatusOr<int64_t> shrink();

  [[nodiscard]] std::string_view table_class() const override {
    return options_.disk_path.empty() ? "MemorySparseTable" : "SSDSparseTable";
  }
  /// Arguments: ids [, counts of accesses as i64]; "infer": accesses do not count.
  Status pull(const TableCall& call, Value& reply) override;
  /// Arguments: ids, values; none with "shrink", which ends a day.
  Status push(const TableCall& call) override;
  [[nodiscard]] int64_t size() const override;  ///< rows in memory
  [[nodiscard]] int64_t memory_bytes() const override;
  void share_rate(const std::atomic<float>* rate) override { context_.rate = rate; }

 protected:
  explicit SparseTable(SparseTableOptions options) : options_(std::move(options)) {}
  Status init();
  /// Rows of each part that a push or set reached.
  using Touched = std::vector<std::vector<uint32_t>>;
  Status push_and_tell(std::span<const int64_t> keys, const float* values, bool sets,
                       Touched* touched);
  [[nodiscard]] SparseShard& shard(size_t index) { return *shards_[index]; }
  [[nodiscard]] size_t shard_count() const { return shards_.size(); }

 private:
  /// Where the keys of a call go; kept between calls.
  struct Split {
    std::vector<uint64_t> hashes;
    std::vector<uint32_t> order;   ///< keys of part 0, of part 1, ...
    std::vector<uint32_t> starts;  ///< of each part in order, and the end
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
