#pragma once

#include <string_view>

#include "executor/collective/collective_group.h"

namespace millrace::executor {

/// Breaks a group if the status is an error, so that the other members learn of it: their calls
/// return kDistributed with "MEMBER N: " and the message, N being the rank in the group.
/// \param group  null: nothing is done
/// \param member  what a member of the group is called: rank, trainer
/// \returns the status
Status break_group(CollectiveGroup* group, std::string_view member, Status status);

}  // namespace millrace::executor
