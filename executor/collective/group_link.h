#pragma once

#include <memory>

#include "executor/collective/collective_group.h"
#include "executor/collective/trainer_link.h"

namespace millrace::executor {

/// The link of data-parallel processes over a group of ranks. All rings use the same group: there
/// is one call at a time, so several groups would change nothing.
///
/// \param world         must outlive the link
/// \param inter_nranks  0: one group. Else each part of this many consecutive ranks computes a
///                      sum, the first ranks of the parts add these sums, and each distributes
///                      the result in its part.
/// Errors: kInvalidArgument if inter_nranks does not divide the ranks; those of subgroup().
StatusOr<std::unique_ptr<TrainerLink>> make_group_link(CollectiveGroup& world,
                                                       int inter_nranks = 0);

}  // namespace millrace::executor
