#pragma once

#include <string>
#include <vector>

#include "fleet/job/job_spec.h"
#include "framework/base/status.h"
#include "framework/program.h"
#include "transpiler/fleet/table_plan.h"

namespace millrace::fleet {

/// The description of a job's tables (ps_desc.txt), protobuf text of PSParameter: for servers what
/// they have, for workers besides how they see it. Same input, same text.
///
/// \param main, startup  the training program
/// \param remarks        gets a line for settings that the original's rules override
/// Errors: those of describe_optimizer(); kInvalidArgument where a table's settings and its
/// embedding have different widths; kUnimplemented for rows that begin in a way that tables do not
/// know. Source: spec/fleet.md section 5.
StatusOr<std::string> describe_tables(const Program& main, const Program& startup,
                                      const transpiler::TablePlan& plan, const JobSpec& job,
                                      const JobRole& role, std::vector<std::string>& remarks);

}  // namespace millrace::fleet
