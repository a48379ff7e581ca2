#pragma once

#include <string>
#include <vector>

#include "fleet/strategy/distributed_strategy.h"
#include "transpiler/distribute/table_plan.h"

namespace millrace::fleet {

/// Settings of a strategy that are never read, one line each; settings with their default values
/// are not reported. Remarks on settings of tables come from apply_table_settings().
/// \param plan  the tables of the job
std::vector<std::string> strategy_remarks(const DistributedStrategy& strategy,
                                          const transpiler::TablePlan& plan);

}  // namespace millrace::fleet
