#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "framework/base/status.h"
#include "io/multi_slot/slots.h"

namespace millrace::io {

/// Values of one slot for several instances.
struct SlotColumn {
  std::vector<float> floats;  ///< values of a float slot
  std::vector<int64_t> ids;   ///< values of any other slot
  std::vector<int64_t> ends;  ///< end index of the values of each instance
};

/// Instances, stored as one column per slot. Columns of unused slots stay empty.
struct SlotRows {
  int64_t rows = 0;
  std::vector<SlotColumn> columns;

  /// Removes the instances but keeps the memory.
  void clear();
};

/// Appends the instances of `from`, whose memory can be reused afterwards.
void append_rows(const SlotRows& from, SlotRows& to);

/// Appends one instance. For every slot in order the line has a count, followed by that many
/// numbers, separated by blanks or tabs. Ids above 2^63 keep their bits.
///
/// \param line  without its line end; trailing blanks and a carriage return are allowed
/// Errors: kInvalidData with the slot for a count that is missing, below 1 or above 2^31 - 1; for a
/// dense slot, a count other than its width; for a number that is missing, unreadable or out of
/// range; and for anything after the last slot. After an error `to` holds part of the instance.
Status parse_multi_slot_line(std::string_view line, std::span<const Slot> slots, SlotRows& to);

}  // namespace millrace::io
