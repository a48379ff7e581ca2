#pragma once

#include <string>

#include "executor/collective/collective_group.h"

namespace millrace::executor {

/// Every call of a group, with every element type and reduction, with counts below and above every
/// limit of the engines. All ranks call it. \returns what is wrong; empty if nothing
std::string check_group(CollectiveGroup& group);

/// The group as the way in which ranks exchange what checkpoints need: texts of all lengths, also
/// by a subgroup in a thread of its own where the engine allows that, and a checkpoint of rows that
/// is read by columns. All ranks call it.
std::string check_gather(CollectiveGroup& group);

/// Groups of some of the ranks, also two at once. All ranks call it.
std::string check_subgroups(CollectiveGroup& group);

}  // namespace millrace::executor
