#pragma once

#include <string>
#include <vector>

#include "framework/base/status.h"
#include "transpiler/fleet/table_plan.h"

namespace millrace::transpiler {

/// Puts one distributed_lookup_table for all lookups of an embedding, and one
/// distributed_push_sparse behind everything for the gradients of its lookups. Where ids of a later
/// lookup are computed behind the first use of an earlier one, what computes them is moved forward;
/// where that cannot be, every lookup stays at its place.
///
/// \param remarks  gets a line for what was asked for and not done
/// Errors: kInvalidProgram for a lookup of a parameter that no optimizer updates, a show or click
/// var of another kind than its name is needed for.
/// Source: spec/fleet.md section 7.
Status fuse_tables(Program& main, const TablePlan& plan, std::vector<std::string>& remarks);

}  // namespace millrace::transpiler
