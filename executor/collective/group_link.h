#pragma once

#include <memory>

#include "executor/collective/collective_group.h"
#include "executor/parallel/trainer_link.h"

namespace millrace::executor {

/// The link of data-parallel processes over a group of ranks. Rings are all the same group: calls
/// come one at a time, so several would change nothing.
///
/// \param world         must outlive the link
/// \param inter_nranks  0: one group. Else so many consecutive ranks sum among themselves, the
///                      first of each such part with those of the others, and pass the sum on.
/// Errors: kInvalidArgument where inter_nranks does not divide the ranks; those of subgroup().
StatusOr<std::unique_ptr<TrainerLink>> make_group_link(CollectiveGroup& world,
                                                       int inter_nranks = 0);

}  // namespace millrace::executor
