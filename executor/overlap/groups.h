#pragma once

#include <cstdint>
#include <vector>

#include <llvm/ADT/ArrayRef.h>

#include "executor/overlap/dependencies.h"

namespace millrace::executor {

/// About how long a step takes.
struct StepWork {
  double one_us = 0;  ///< on one thread
  double all_us = 0;  ///< on all threads
  bool alone = true;  ///< nothing may run beside it, or nobody knows how long it takes
};

/// Neighbouring steps [first, end) that run side by side, each on one thread, when those that it
/// waits for are done.
struct Group {
  int32_t first = 0;
  int32_t end = 0;
  double gain_us = 0;  ///< what that is expected to save
};

/// Chooses groups that take less time than their steps one after another, each on all threads: so
/// that the expected time of all steps is least, and a hand-over pays. Groups do not overlap and
/// come in order. Follows from its arguments alone. Cost: O(n * longest group).
///
/// \param dependencies  of the same steps
std::vector<Group> choose_groups(llvm::ArrayRef<StepWork> work, const Dependencies& dependencies,
                                 int threads);

}  // namespace millrace::executor
