#pragma once

#include <memory>

#include "executor/collective/collective_group.h"
#include "io/checkpoint/gather.h"

namespace millrace::executor {

/// A process group as the way in which ranks exchange what checkpoints need. Its deadline and its
/// errors are those of the group, which a failure breaks.
/// \param group  must outlive the result; others must not use it meanwhile
std::unique_ptr<io::Gather> make_group_gather(CollectiveGroup& group);

/// True if one thread may use a group and another one a subgroup of it at the same time. MPI allows
/// calls from one thread at a time only.
bool allows_calls_side_by_side(const CollectiveGroup& group);
/// A group of the same ranks. A call on all of them. Errors: those of subgroup().
StatusOr<std::unique_ptr<CollectiveGroup>> group_of_all(CollectiveGroup& group);

}  // namespace millrace::executor
