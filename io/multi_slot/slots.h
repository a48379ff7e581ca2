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
  std::string name;       ///< name of the var that it feeds
  bool is_float = false;  ///< values are float32; else int64 (the original's "uint64")
  bool is_dense = false;  ///< the same number of values in every instance; else one LoD level
  bool is_used = true;    ///< false: its values are skipped
  /// Dense slots: dims of an instance, all above 0; empty means a single number.
  std::vector<int64_t> dims = {};

  /// Number of values per instance of a dense slot.
  [[nodiscard]] size_t width() const;
};

/// Content of a slots file.
struct SlotsFile {
  int64_t batch_size = 0;  ///< 0: not stated
  std::vector<Slot> slots;
};

/// Parses the description of MultiSlot text: {"slots": [...], "batch_size": 64}, or the original's
/// DataFeedDesc with its field names ({"multi_slot_desc": {"slots": [...]}, "batch_size": 64}).
///
/// A slot is a name, or {"name", "type": "float" or "uint64", "is_dense", "is_used", "shape"}.
/// Missing fields are taken from the var of that name: float32 is float and int64 is uint64; LoD
/// level 0 means dense with the dims of the var. A shape may begin with -1 for the instances of a
/// batch.
/// Errors: kInvalidData with the slot. Source: spec/fleet.md section 14.
StatusOr<SlotsFile> parse_slots(std::string_view json, const Program& program);

}  // namespace millrace::io
