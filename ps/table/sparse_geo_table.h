#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "ps/table/sparse_table.h"

namespace millrace::ps {

/// A sparse table to which deltas are added, and which records for each trainer the rows that
/// changed since its last pull (MemorySparseGeoTable). A push marks rows as changed for all
/// trainers, including the pushing one.
class SparseGeoTable final : public SparseTable {
 public:
  /// The accessor must be kCommMerge. Errors: as SparseTable::create(); kInvalidArgument if
  /// trainers is not > 0.
  static StatusOr<std::unique_ptr<SparseGeoTable>> create(SparseTableOptions options, int trainers);

  [[nodiscard]] std::string_view table_class() const override { return "MemorySparseGeoTable"; }
  /// "geo": selected rows, ascending, that changed since the trainer's last pull; else as the base
  /// class.
  Status pull(PullKind kind, const TableCall& call, Value& reply) override;
  Status push(PushKind kind, const TableCall& call) override;
  /// All rows count as changed for all trainers: which of them a trainer has is not in the state.
  Status set_state(const TableState& state) override;
  /// Returns rows and values that changed for a trainer, and marks them as up to date.
  /// \param sequence  of the call: if it equals that of the previous call, the response to that was
  ///                  lost, and its rows are returned again; 0: unknown
  Status pull_changed(int trainer, SelectedRows& changed, uint64_t sequence = 0);
  using SparseTable::pull;
  using SparseTable::push;

 private:
  /// Positions of changed rows in one partition, each once.
  struct Changed {
    std::vector<bool> is_in;
    std::vector<uint32_t> rows;
    std::vector<uint32_t> given;  ///< in the last response

    void add(uint32_t row);
  };
  SparseGeoTable(SparseTableOptions options, int trainers)
      : SparseTable(std::move(options)),
        changed_(static_cast<size_t>(trainers)),
        last_sequence_(static_cast<size_t>(trainers)) {}

  std::mutex mutex_;
  std::vector<std::vector<Changed>> changed_;  ///< by trainer and partition
  std::vector<uint64_t> last_sequence_;        ///< of each trainer's last response
};

}  // namespace millrace::ps
