#pragma once

#include <memory>

#include "executor/collective/collective_group.h"
#include "io/checkpoint/gather.h"

namespace millrace::executor {

/// Lets checkpoints exchange data between ranks over a process group. Deadline and errors are those
/// of the group, which a failure breaks.
/// \param group  must outlive the result and must not be used by others meanwhile
std::unique_ptr<io::Gather> make_group_gather(CollectiveGroup& group);

/// True if one thread may use a group while another one uses a subgroup of it. MPI allows calls
/// from only one thread at a time.
bool allows_calls_side_by_side(const CollectiveGroup& group);
/// Makes a group of the same ranks. All of them must call it. Errors: those of subgroup().
StatusOr<std::unique_ptr<CollectiveGroup>> group_of_all(CollectiveGroup& group);

}  // namespace millrace::executor
