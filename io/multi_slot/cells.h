#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "framework/base/status.h"
#include "io/multi_slot/line.h"
#include "io/multi_slot/slots.h"

namespace millrace::io {

/// How often each value of the slots with a CellRule::min_count appears, before buckets.
class ValueCounts {
 public:
  void add(size_t slot, uint64_t value) { ++counts_[slot][value]; }
  /// 0 for values that were not added.
  [[nodiscard]] int64_t of(size_t slot, uint64_t value) const;
  explicit ValueCounts(size_t slots) : counts_(slots) {}

 private:
  std::vector<std::unordered_map<uint64_t, int64_t>> counts_;
};

/// Reads lines of delimited text: cells between separators, without quotes. Not thread-safe.
class DelimitedLines {
 public:
  /// \param counts  of all files, for slots with a min_count; may be null if there are none
  /// All must outlive this.
  DelimitedLines(const TextFormat& format, std::span<const Slot> slots, const ValueCounts* counts);

  /// Appends one instance.
  /// \param line  without its line end; a carriage return at its end is ignored
  /// Errors: kInvalidData for a blank line; with slot and column (from 0) for a cell that is empty
  /// without a default, or that is not a finite number where one is expected; for another number of
  /// cells than TextFormat::columns. After an error `to` holds part of the instance.
  Status append(std::string_view line, SlotRows& to);
  /// Counts the values of one instance. Errors: those of append() for slots with a min_count.
  Status count(std::string_view line, ValueCounts& to);

 private:
  Status split(std::string_view line);
  Status append_floats(const Slot& slot, SlotColumn& column) const;
  Status append_ids(size_t number, SlotColumn& column) const;

  TextFormat format_;
  std::span<const Slot> slots_;
  const ValueCounts* counts_;
  std::vector<std::string_view> cells_;  ///< of the current line
};

/// A finite number that fills the cell. \returns false for anything else
bool parse_cell_float(std::string_view text, float& value);
/// The id of a value of hash_cell(): its bucket, or CellRule::rare_id if it is rare.
/// \param slot  number of the slot in `counts`, which may be null without a min_count
int64_t id_of(uint64_t value, size_t slot, const CellRule& rule, const ValueCounts* counts);
/// The value of a cell before buckets. \returns false if it is not a number where the rule expects
/// one
bool hash_cell(std::string_view cell, const CellRule& rule, uint64_t& value);

}  // namespace millrace::io
