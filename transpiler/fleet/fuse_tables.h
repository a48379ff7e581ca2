#pragma once

#include <string>
#include <vector>

#include "framework/base/status.h"
#include "transpiler/distribute/table_plan.h"

namespace millrace::transpiler {

/// Replaces all lookups of an embedding by one distributed_lookup_table, and adds one
/// distributed_push_sparse at the end for the gradients of its lookups. If the ids of a later
/// lookup are computed after the first use of an earlier lookup, the ops that compute them are
/// moved forward; if that is impossible, every lookup stays where it is.
///
/// \param remarks  gets a line for each request that was not carried out
/// Errors: kInvalidProgram for a lookup of a parameter that no optimizer updates, or a show or
/// click var of the wrong kind.
/// Source: spec/fleet.md section 7.
Status fuse_tables(Program& main, const TablePlan& plan, std::vector<std::string>& remarks);

}  // namespace millrace::transpiler
