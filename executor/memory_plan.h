#pragma once

#include <cstdint>
#include <vector>

#include <llvm/ADT/ArrayRef.h>

namespace millrace::executor {

/// Memory that is needed from one step to another, both included.
struct LiveRange {
  int64_t first = 0;  ///< step that writes it first
  int64_t last = 0;   ///< last step that reads or writes it, >= first
  int64_t bytes = 0;
  /// Index of a range whose memory this one takes over: that one ends in the step in which this one
  /// begins, and is at least as large. -1: none.
  int32_t takes_over = -1;
};

/// Where each range stands in one piece of memory.
struct MemoryPlan {
  std::vector<int64_t> offsets;  ///< bytes, multiples of kBufferAlignment; one a range
  int64_t bytes = 0;             ///< size of the piece
  int64_t peak_live = 0;         ///< largest sum of ranges that live at once; bytes cannot be below
};

/// Places ranges so that no two that live at once overlap, except those that take over. Walks the
/// steps once and takes the smallest hole that fits. Cost: O(n log n).
MemoryPlan plan_memory(llvm::ArrayRef<LiveRange> ranges);

}  // namespace millrace::executor
