#pragma once

#include <cstdint>

#include "framework/base/status.h"
#include "framework/program.h"
#include "transpiler/distribute/table_plan.h"
#include "transpiler/fleet/fleet_programs.h"

/// Hybrid jobs: the servers have the tables of embeddings only. Workers keep the dense parameters,
/// average the gradients of these by all-reduce, and run the program's own updates.
namespace millrace::transpiler {

/// Leaves the tables of embeddings in the plan only.
/// Errors: kInvalidArgument for a program without such tables, or without dense parameters;
/// kUnimplemented for statistics of data_norm, and for embeddings that are looked up by sparse ops
/// without remote_prefetch.
Status keep_rows_only(const Program& main, TablePlan& plan);

/// Sums the gradient of each dense parameter over all workers as soon as it is computed (pass
/// collective-allreduce-gradients), and divides the sums by the number of workers before the
/// optimizer. Gradients of embeddings stay those of the worker, because servers average them.
///
/// \param plan  of keep_rows_only()
/// Errors: kInvalidProgram for an update whose gradient no backward op lists; kUnimplemented for a
/// program that already exchanges values, or computes gradients after an update.
Status average_dense_gradients(Program& main, const TablePlan& plan, int64_t workers);

/// Removes the updates of embeddings, and ops and state that serve no other update.
void delete_row_updates(Program& main, Program& startup, const TablePlan& plan,
                        const FleetWorkerOptions& options);

/// Checks that a finished worker's program changes dense parameters and their state only by values
/// that are equal on all workers: averaged gradients, state, and rates.
/// Errors: kUnimplemented naming op and value, such as clipping by a norm over embeddings.
Status check_equal_updates(const Program& main, const TablePlan& plan);

}  // namespace millrace::transpiler
