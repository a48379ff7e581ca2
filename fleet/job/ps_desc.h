#pragma once

#include <string>
#include <vector>

#include "fleet/job/job_spec.h"
#include "framework/base/status.h"
#include "framework/program.h"
#include "transpiler/distribute/table_plan.h"

namespace millrace::fleet {

/// The description of a job's tables (ps_desc.txt), protobuf text of PSParameter. For servers it
/// has their tables, for workers also how they use them. The same input produces the same text.
///
/// \param main, startup  the training program
/// \param remarks        receives a line for settings that the original's rules override
/// Errors: those of describe_optimizer(); kInvalidArgument if a table's settings and its embedding
/// have different widths; kUnimplemented for initializers that tables do not support. Source:
/// spec/fleet.md section 5.
StatusOr<std::string> describe_tables(const Program& main, const Program& startup,
                                      const transpiler::TablePlan& plan, const JobSpec& job,
                                      const JobRole& role, std::vector<std::string>& remarks);

}  // namespace millrace::fleet
