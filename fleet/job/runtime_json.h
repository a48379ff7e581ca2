#pragma once

#include <string>

#include "fleet/job/job_spec.h"
#include "framework/base/status.h"
#include "transpiler/fleet/table_plan.h"

namespace millrace::fleet {

/// What a process of a job needs besides programs and descriptions (runtime.json): mode, the
/// communicator's settings, contexts of what is sent and received, and which trainer runs the
/// program. Errors: those of DistributedStrategy::mode(). Source: spec/fleet.md sections 3, 13, 14.
StatusOr<std::string> runtime_json(const transpiler::TablePlan& plan, const JobSpec& job,
                                   const JobRole& role);

}  // namespace millrace::fleet
