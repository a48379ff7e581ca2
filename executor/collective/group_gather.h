#pragma once

#include <memory>

#include "executor/collective/collective_group.h"
#include "io/checkpoint/gather.h"

namespace millrace::executor {

/// A process group as the way in which ranks exchange what checkpoints need. Its deadline and its
/// errors are those of the group, which a failure breaks.
/// \param group  must outlive the result; others must not use it meanwhile
std::unique_ptr<io::Gather> make_group_gather(CollectiveGroup& group);

}  // namespace millrace::executor
