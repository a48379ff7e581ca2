#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "framework/base/status.h"
#include "framework/program.h"

namespace millrace::io {

/// One slot of an instance in MultiSlot text.
struct Slot {
  std::string name;       ///< of the var that it feeds
  bool is_float = false;  ///< values are float32; else int64 (the original's "uint64")
  bool is_dense = false;  ///< as many values in every instance; else one level of LoD
  bool is_used = true;    ///< else it is skipped by its count
  /// Dense: dims of an instance, all above 0; empty is one number.
  std::vector<int64_t> dims = {};

  /// Values of an instance of a dense slot.
  [[nodiscard]] size_t width() const;
};

/// What a slots file says.
struct SlotsFile {
  int64_t batch_size = 0;  ///< 0: it does not say
  std::vector<Slot> slots;
};

/// Reads the description of MultiSlot text: {"slots": [...], "batch_size": 64}, or the original's
/// DataFeedDesc with its field names ({"multi_slot_desc": {"slots": [...]}, "batch_size": 64}).
///
/// A slot is a name, or {"name", "type": "float" or "uint64", "is_dense", "is_used", "shape"}. What
/// is missing follows from the var of that name: float32 is float and int64 uint64, LoD level 0 is
/// dense with its dims. A shape may begin with -1 for the instances of a batch.
/// Errors: kInvalidData with the slot. Source: spec/fleet.md section 14.
StatusOr<SlotsFile> parse_slots(std::string_view json, const Program& program);

}  // namespace millrace::io
