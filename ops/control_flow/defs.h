#pragma once

#include "ops/op_def.h"
#include "ops/registry.h"

namespace millrace::ops {

/// Op families of this folder, one per file.
void add_block_ops(OpRegistry& registry);
void add_assign_ops(OpRegistry& registry);
void add_array_ops(OpRegistry& registry);
void add_rank_table_ops(OpRegistry& registry);
void add_branch_ops(OpRegistry& registry);
void add_report_ops(OpRegistry& registry);

}  // namespace millrace::ops
