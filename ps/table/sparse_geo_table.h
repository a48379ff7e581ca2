#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "ps/table/sparse_table.h"

namespace millrace::ps {

/// A sparse table to which deltas are added, and which knows for each trainer the rows that changed
/// since he last asked (MemorySparseGeoTable). A push counts for all trainers, his own included.
class SparseGeoTable final : public SparseTable {
 public:
  /// The accessor must be kCommMerge. Errors: as SparseTable::create(); kInvalidArgument for
  /// trainers not > 0.
  static StatusOr<std::unique_ptr<SparseGeoTable>> create(SparseTableOptions options, int trainers);

  [[nodiscard]] std::string_view table_class() const override { return "MemorySparseGeoTable"; }
  /// "geo": selected rows, rising, that changed since the trainer last asked; else as the base.
  Status pull(const TableCall& call, Value& reply) override;
  Status push(const TableCall& call) override;
  /// Rows and values that changed for a trainer; he is then up to date.
  /// \param sequence  of the call: if the last one had it, too, its answer was lost, and its rows
  ///     are given again; 0: not known
  Status pull_changed(int trainer, SelectedRows& changed, uint64_t sequence = 0);
  using SparseTable::pull;
  using SparseTable::push;

 private:
  /// Positions of rows in one part, each once.
  struct Changed {
    std::vector<bool> is_in;
    std::vector<uint32_t> rows;
    std::vector<uint32_t> given;  ///< in the last answer

    void add(uint32_t row);
  };
  SparseGeoTable(SparseTableOptions options, int trainers)
      : SparseTable(std::move(options)),
        changed_(static_cast<size_t>(trainers)),
        last_sequence_(static_cast<size_t>(trainers)) {}

  std::mutex mutex_;
  std::vector<std::vector<Changed>> changed_;  ///< by trainer and part
  std::vector<uint64_t> last_sequence_;        ///< of each trainer's last answer
};

}  // namespace millrace::ps
