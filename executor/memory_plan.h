#pragma once

#include <cstdint>
#include <vector>

#include <llvm/ADT/ArrayRef.h>

namespace millrace::executor {

/// Memory that is needed from one op to another, both inclusive.
struct LiveRange {
  int64_t first = 0;  ///< op that writes it first
  int64_t last = 0;   ///< last op that reads or writes it, >= first
  int64_t bytes = 0;
  /// Index of a range whose memory this one reuses: that range ends in the op in which this one
  /// begins, and is at least as large. -1: none.
  int32_t takes_over = -1;
};

/// The offset of each range in one memory region.
struct MemoryPlan {
  std::vector<int64_t> offsets;  ///< in bytes, multiples of kBufferAlignment; one per range
  int64_t bytes = 0;             ///< size of the region
  int64_t peak_live = 0;  ///< largest total size of ranges live at once: lower bound of bytes
};

/// Places ranges so that no two that are live at once overlap, except those that reuse memory.
/// Walks the ops once and takes the smallest hole that fits. Cost: O(n log n).
MemoryPlan plan_memory(llvm::ArrayRef<LiveRange> ranges);

}  // namespace millrace::executor
