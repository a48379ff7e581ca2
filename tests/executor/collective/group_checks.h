#pragma once

#include <string>

#include "executor/collective/collective_group.h"

namespace millrace::executor {

/// Runs every call of a group, with every element type and reduction, and with counts below and
/// above every limit of the engines. All ranks must call it. \returns an error text; empty if there
/// is none
std::string check_group(CollectiveGroup& group);

/// Checks the exchanges that checkpoints need: texts of all lengths, also in a subgroup in a
/// separate thread if the engine allows it, and a checkpoint of rows that is read by columns. All
/// ranks must call it.
std::string check_gather(CollectiveGroup& group);

/// Checks groups of some of the ranks, also two at the same time. All ranks must call it.
std::string check_subgroups(CollectiveGroup& group);

}  // namespace millrace::executor
