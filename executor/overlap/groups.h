#pragma once

#include <cstdint>
#include <vector>

#include <llvm/ADT/ArrayRef.h>

#include "executor/overlap/dependencies.h"

namespace millrace::executor {

/// Estimated time of an op.
struct OpWork {
  double one_us = 0;  ///< on one thread
  double all_us = 0;  ///< on all threads
  bool alone = true;  ///< nothing may run in parallel with it, or its time is unknown
};

/// Neighbouring ops [first, end) that run in parallel, each on one thread, when the ops that
/// they depend on are done.
struct Group {
  int32_t first = 0;
  int32_t end = 0;
  double gain_us = 0;  ///< expected saving
};

/// Chooses groups that take less time than running their ops one after another, each on all
/// threads: minimizes the expected time of all ops, counting the cost of handing ops to
/// threads. Groups do not overlap and are in order. Depends only on its arguments. Cost: O(n *
/// longest group).
///
/// \param dependencies  of the same ops
std::vector<Group> choose_groups(llvm::ArrayRef<OpWork> work, const Dependencies& dependencies,
                                 int threads);

}  // namespace millrace::executor
