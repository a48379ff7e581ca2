#pragma once

#include <string>

#include "fleet/job/job_spec.h"
#include "framework/base/status.h"
#include "transpiler/distribute/table_plan.h"

namespace millrace::fleet {

/// What a process of a job needs besides programs and descriptions (runtime.json): mode, settings
/// of the communicator, contexts of what is sent and received, and the class of trainer that runs
/// the program. Errors: those of DistributedStrategy::mode(). Source: spec/fleet.md sections 3, 13,
/// 14.
StatusOr<std::string> runtime_json(const transpiler::TablePlan& plan, const JobSpec& job,
                                   const JobRole& role);

}  // namespace millrace::fleet
