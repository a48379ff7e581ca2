#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "framework/base/status.h"
#include "io/multi_slot/slots.h"

namespace millrace::io {

/// Values of one slot over some instances.
struct SlotColumn {
  std::vector<float> floats;  ///< of a float slot
  std::vector<int64_t> ids;   ///< of another
  std::vector<int64_t> ends;  ///< where the values of each instance end
};

/// Instances, a column a slot. Columns of slots that are not used stay empty.
struct SlotRows {
  int64_t rows = 0;
  std::vector<SlotColumn> columns;

  /// Drops the instances and keeps the memory.
  void clear();
};

/// Appends one instance: for every slot in order its count, then so many numbers, separated by
/// blanks or tabs. Ids above 2^63 keep their bits.
///
/// \param line  without its end; blanks and a carriage return may stand there
/// Errors: kInvalidData with the slot for a count that is missing, below 1 or above 2^31 - 1, that
/// of a dense slot that is not its width, a number that is missing, unreadable or out of range, and
/// anything behind the last slot. Then `to` holds part of the instance.
Status parse_multi_slot_line(std::string_view line, std::span<const Slot> slots, SlotRows& to);

}  // namespace millrace::io
