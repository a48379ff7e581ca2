#pragma once

#include "framework/block.h"
#include "transpiler/distribute/job.h"

/// Ops of a trainer that fetch rows of a prefetched table (spec/transpiler.md section 9).
namespace millrace::transpiler {

/// Sets the attributes of a distributed_lookup_table: where the slices of the table are (names,
/// rows and servers of each), which trainer asks, and the id and form of the lookups it replaces.
/// \param padding  id whose row is zeros; -1: none
/// \param form     lookup_table or lookup_table_v2
void describe_remote_lookup(Op& lookup, const DistributionJob& job, const ParamGrad& table,
                            int64_t padding, const std::string& form);

/// Lets nce and hierarchical_sigmoid ops with remote_prefetch fetch the rows that a step needs: an
/// op before them lists the classes or nodes, a distributed_lookup_table fetches their rows, and
/// the loss and its gradient read those instead of the table. Removes the ops from
/// job.prefetch_lookups. The original's releases up to 1.5 fetch the rows within the loss op.
void fetch_rows_of_losses(Block& block, DistributionJob& job, const ParamGrad& table);

}  // namespace millrace::transpiler
