#pragma once

#include "framework/base/status.h"
#include "ps/server/server_core.h"
#include "ps/slices/plan_facts.h"

namespace millrace::ps {

/// Compares what a trainer says about the distribution with this server: dtype and dims of the
/// vars that it receives, and the facts of ServerOptions::plan. A var that the server lacks
/// is reported when it is fetched. Thread-safety: any thread.
/// Errors: kDistributed with both sides and the first difference.
Status check_plan(const ServerCore& core, int trainer, const PlanFacts& told);

}  // namespace millrace::ps
