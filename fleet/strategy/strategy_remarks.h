#pragma once

#include <string>
#include <vector>

#include "fleet/strategy/distributed_strategy.h"
#include "transpiler/fleet/table_plan.h"

namespace millrace::fleet {

/// Settings of a strategy that nothing reads, a line each; those that have their defaults are not
/// told. Settings of tables have remarks of their own (apply_table_settings()).
/// \param plan  the tables of the job
std::vector<std::string> strategy_remarks(const DistributedStrategy& strategy,
                                          const transpiler::TablePlan& plan);

}  // namespace millrace::fleet
