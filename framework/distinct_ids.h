#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <llvm/ADT/ArrayRef.h>

namespace millrace {

/// Finds out which ids of a list are equal: numbers of rows, keys of tables. Keeps its memory from
/// one list to the next. Thread-safety: one thread at a time.
class DistinctIds {
 public:
  /// Forgets all ids.
  /// \param most  number of ids that add() will receive at most, repeats included; below 2^31
  void begin(size_t most) {
    // at most half of the table is occupied
    const size_t capacity = std::bit_ceil(2 * most + 2);
    table_.assign(capacity, 0);
    shift_ = 64U - static_cast<unsigned>(std::bit_width(capacity - 1));
    ids_.clear();
    ids_.reserve(most);
  }

  /// The position of an id in ids(), to which it is added if it is new.
  size_t add(int64_t id) {
    const size_t mask = table_.size() - 1;
    // a multiplicative hash: consecutive ids, which are common, spread over the table
    size_t at = static_cast<size_t>((static_cast<uint64_t>(id) * 0x9E3779B97F4A7C15ULL) >> shift_);
    while (table_[at] != 0 && ids_[table_[at] - 1] != id) at = (at + 1) & mask;
    if (table_[at] == 0) {
      ids_.push_back(id);
      table_[at] = static_cast<uint32_t>(ids_.size());
    }
    return table_[at] - 1;
  }

  /// The distinct ids, in the order of their first occurrence.
  [[nodiscard]] llvm::ArrayRef<int64_t> ids() const { return ids_; }
  /// Number of distinct ids.
  [[nodiscard]] size_t size() const { return ids_.size(); }

 private:
  std::vector<int64_t> ids_;
  std::vector<uint32_t> table_;  ///< open addressing: position in ids_ + 1, 0 is free
  unsigned shift_ = 0;
};

}  // namespace millrace
